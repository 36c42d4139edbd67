"""The fair comparison: the same network, prior, likelihood, data, splits and seeds for every method, with what each costs.

    table = compare(model, (x, y), {"ensemble": 5 * MAP(), "mine": Mine()}, test=(x2, y2), reference=4 * HMC(), seeds=(0, 1, 2))
    print(table.text())

`suite("uci")` and the like are tasks with fixed splits, for `compare_tasks(suite("toy"), {"mine": Mine()})`.
"""

from nescio.comparison.compare import Fit, compare, compare_tasks
from nescio.comparison.suites import SUITES, standard_methods, suite
from nescio.comparison.table import Comparison, Row
from nescio.comparison.task import Task

__all__ = ["SUITES", "Comparison", "Fit", "Row", "Task", "compare", "compare_tasks", "standard_methods", "suite"]
