"""Faults planted in the comparison of methods, each with the check that must notice it."""

from __future__ import annotations

from sys import modules
from typing import Any

import test_compare as proof
from fault import Fault
from faults_laws import instead

from nescio.comparison import closeness, compare
from nescio.comparison.table import Comparison
from nescio.infer.method import Repeat


def upside_down(right: Any, self: Comparison, score: str = "nll") -> dict[str, float]:
    found = right(self, score)
    return {method: len(found) + 1 - rank for method, rank in found.items()}


def not_halved(right: Any, p: Any, q: Any) -> float:
    return 2 * right(p, q)


def itself(right: Any, reference: Any) -> tuple[Any, Any]:
    """No halves: all chains against all chains, one chain or many."""
    return reference, reference


def unsaid(right: Any, task: Any, reference: Any) -> tuple[Any, Any]:
    judge, limit = right(task, reference)
    return judge, None if isinstance(limit, str) else limit


def one_chain(right: Any, method: Any, data: Any, info: dict[str, Any]) -> float | None:
    return right(method.method if isinstance(method, Repeat) else method, data, info)


FAULTS = [
    Fault("ranks upside down", instead(Comparison, "ranks", upside_down), proof.check_ranks),
    Fault("total variation not halved", instead(proof, "densities_apart", not_halved), proof.check_total_variation),
    Fault("class distance not halved", instead(closeness, "total_variation", not_halved), proof.check_total_variation),
    Fault("the ceiling of a reference against itself", instead(closeness, "halves", itself), proof.check_ceiling),
    Fault(
        "no ceiling, and no word of it", instead(modules[compare.__module__], "referee", unsaid), proof.check_ceiling
    ),
    Fault("passes of one chain for all", instead(proof, "passes", one_chain), proof.check_passes),
]
