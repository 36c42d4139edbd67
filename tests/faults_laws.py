"""Faults planted in the laws, each with the check that must notice it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from fault import Fault
from test_discrete import check_enumeration, check_submodels
from test_laws import check_density, check_draws, check_horseshoe, check_mixture_density, check_normalised, check_score
from test_laws_shared import check_ard_density, check_fans, check_patterns, check_sharing
from test_laws_structured import check_correlated_draws, check_matrix_draws, check_structured_density, check_views
from torch import Tensor
from torch import distributions as td
from torch.distributions.transforms import ExpTransform

import nescio.laws.prior as priors
import nescio.laws.site as where
from nescio.densities import Folded, TwoNormals
from nescio.laws.catalogue import HalfCauchy, Laplace, StudentT
from nescio.laws.sparse import Discrete, ScaleMixture
from nescio.laws.structured import Whitened
from nescio.laws.variable import Part, Reading, Variable

Plant = Callable[[pytest.MonkeyPatch], None]


def instead(owner: Any, name: str, fault: Callable[..., Any]) -> Plant:
    """`owner.name` is replaced by `fault`, which gets what it replaces as its first argument."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = getattr(owner, name)
        patch.setattr(owner, name, lambda *args, **named: fault(right, *args, **named))

    return plant


def no_log_scale(right: Any, self: Variable, u: Tensor, values: Any, centred: bool) -> Part:
    part = right(self, u, values, centred)
    if centred or not self.noncentred:
        return part
    scale = self.numbers(values)["scale"]
    return part._replace(log_jacobian=part.log_jacobian - scale.log().expand(u.shape).sum())


def counted_twice(right: Any, self: Variable, u: Tensor, values: Any, centred: bool) -> Part:
    """A shared scale's density once for each weight instead of once."""
    part = right(self, u, values, centred)
    times = self.group.size / self.size if self.nested else 1
    return part._replace(log_density=part.log_density * times)


def centred_density(right: Any, self: Variable, u: Tensor, values: Any, centred: bool) -> Part:
    """The non-centred block with the density of the centred one."""
    return right(self, u, values, centred)._replace(log_density=right(self, u, values, True).log_density)


def other_axis(right: Any, self: where.Site, what: Any) -> Tensor:
    return right(self, {"input": "output", "output": "input"}.get(what, what))


def untied(right: Any, self: where.Group, what: Any) -> tuple[Tensor, int]:
    return right(self, "output" if what == "unit" else what)


def longest_match(right: Any, laws: Any, found: Any) -> Any:
    return right(dict(sorted(laws.items(), key=lambda item: -len(item[0]))), found)


def rootless(right: Any, self: Reading, values: Any) -> Tensor:
    root, self.root = self.root, False
    try:
        return right(self, values)
    finally:
        self.root = root


def gateless(right: Any, self: Reading, values: Any) -> Tensor:
    x = values[self.variable] if self.constant is None else self.constant
    return right(self, values) if self.gate is None else x


def transposed(right: Any, self: Whitened, z: Tensor) -> Tensor:
    return right(Whitened([tuple(f.mT for f in block) for block in self.factors]), z)


def kronecker_once(right: Any, self: Whitened) -> Tensor:
    return torch.stack([f.diagonal().log().sum() for block in self.factors for f in block]).sum()


def swapped_draws(right: Any, self: TwoNormals, shape: Any = ()) -> Tensor:
    return right(TwoNormals(1 - self.weight, self.wide, self.narrow), torch.Size(shape))


FAULTS: list[Fault] = [
    Fault(
        "Jacobian of exp forgotten: mass",
        instead(ExpTransform, "log_abs_det_jacobian", lambda right, self, x, y: torch.zeros_like(x)),
        partial(check_normalised, "gamma"),
    ),
    Fault(
        "Jacobian of exp forgotten: score",
        instead(ExpTransform, "log_abs_det_jacobian", lambda right, self, x, y: torch.zeros_like(x)),
        partial(check_score, "half cauchy"),
    ),
    Fault("non-centred Jacobian without log scale", instead(Variable, "constrain", no_log_scale), partial(check_views, "relevance")),
    Fault("non-centred block with the centred density", instead(Variable, "constrain", centred_density), partial(check_views, "horseshoe")),
    Fault("shared scale counted for each weight", instead(Variable, "constrain", counted_twice), check_ard_density),
    Fault("fan-in and fan-out swapped", instead(where, "fans", lambda right, *args: right(*args)[::-1]), check_fans),
    Fault("per input along the outputs", instead(where.Site, "index", other_axis), check_sharing),
    Fault("bias not tied to its unit", instead(where.Group, "index", untied), check_sharing),
    Fault("longest pattern wins", instead(priors, "match", longest_match), check_patterns),
    Fault("square root ignored", instead(Reading, "forward", rootless), partial(check_mixture_density, "student")),
    Fault("gate ignored", instead(Reading, "forward", gateless), check_submodels),
    Fault(
        "Student-t with twice the degrees of freedom",
        instead(StudentT, "distribution", lambda right, self, df, loc, scale: td.StudentT(2 * df, loc, scale)),
        partial(check_density, "student"),
    ),
    Fault(
        "Laplace scale taken for a variance",
        instead(Laplace, "distribution", lambda right, self, loc, scale: td.Laplace(loc, scale.sqrt())),
        partial(check_density, "laplace"),
    ),
    Fault(
        "spike and slab swapped in the density",
        instead(ScaleMixture, "distribution", lambda right, self, inclusion, slab, spike: TwoNormals(inclusion, spike, slab)),
        partial(check_density, "spike and slab"),
    ),
    Fault("spike and slab swapped in the draws", instead(TwoNormals, "sample", swapped_draws), partial(check_draws, "spike and slab")),
    Fault(
        "folded law without its factor 2",
        instead(Folded, "log_prob", lambda right, self, value: self.base.log_prob(value)),
        partial(check_normalised, "half student"),
    ),
    Fault(
        "folded law not folded in the draws",
        instead(Folded, "sample", lambda right, self, shape=(): self.base.sample(torch.Size(shape))),
        partial(check_draws, "half student"),
    ),
    Fault(
        "horseshoe with normal local scales",
        instead(HalfCauchy, "distribution", lambda right, self, scale: td.HalfNormal(scale)),
        check_horseshoe,
    ),
    Fault("Cholesky factor transposed in draws", instead(Whitened, "colour", transposed), check_correlated_draws),
    Fault("Kronecker factors transposed in draws", instead(Whitened, "colour", transposed), check_matrix_draws),
    Fault("Kronecker determinant counted once", instead(Whitened, "half_log_det", kronecker_once), check_structured_density),
    Fault(
        "discrete law with equal masses",
        instead(Discrete, "distribution", lambda right, self: right(Discrete(self.values))),
        partial(check_enumeration, "ternary"),
    ),
]  # fmt: skip
