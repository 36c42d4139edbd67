"""Several observations at once, each with its own likelihood; their noise weighs the tasks (Kendall et al., 2018).

    MultiTask(depth=Gaussian(Learned(1.)), seg=Categorical(Learned(1.)))

The network returns a dictionary with these keys, and so does the data; labels that only some rows have are `Masked`. The log density is
the sum, in which a noise scale σ acts as the weight 1/(2σ²) of a squared error and as its own penalty. Of classes it is the temperature,
softmax(f / σ²), for which the paper takes the weight 1/σ² of a cross-entropy: a last layer that is free to grow can undo it.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.distributions import Distribution

from nescio.densities import Joint
from nescio.errors import InputError
from nescio.laws.law import Constraint, Number
from nescio.likelihoods.likelihood import Likelihood
from nescio.likelihoods.masked import Masked, refuse_empty


@final
class MultiTask(Likelihood):
    """Independent tasks by name."""

    tasks: dict[str, Likelihood]

    def __init__(self, **tasks: Likelihood) -> None:
        object.__setattr__(self, "tasks", tasks)

    def __repr__(self) -> str:
        return f"MultiTask({', '.join(f'{name}={task!r}' for name, task in self.tasks.items())})"

    def numbers(self) -> dict[str, tuple[Number, Constraint]]:
        return {f"{name}.{key}": x for name, task in self.tasks.items() for key, x in task.numbers().items()}

    def observe(self, f: dict[str, Any], **numbers: Tensor) -> Distribution:
        def own(name: str) -> dict[str, Tensor]:
            return {key.removeprefix(f"{name}."): x for key, x in numbers.items() if key.startswith(f"{name}.")}

        return Joint({name: task.observe(f[name], **own(name)) for name, task in self.tasks.items()})

    def check(self, f: Any, y: Any) -> None:
        for what, mapping in {"the network's output": f, "y": y}.items():
            if not isinstance(mapping, dict) or set(mapping) != set(self.tasks):
                got = sorted(mapping) if isinstance(mapping, dict) else type(mapping).__name__
                raise InputError(
                    f"{what} must be a dictionary with the tasks {sorted(self.tasks)}", str(got), "name them alike"
                )
        for name, task in self.tasks.items():
            (task.check_known if isinstance(task, Masked) else task.check)(f[name], y[name])
        masked = [task.absent(y[name]) for name, task in self.tasks.items() if isinstance(task, Masked)]
        if len(masked) == len(self.tasks):
            refuse_empty(torch.stack(masked).all(0), "label of some task")
