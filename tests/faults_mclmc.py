"""Faults in the microcanonical samplers, each with the check that sees it (tests/test_mclmc.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import test_mclmc as checks
import torch
from fault import Fault
from torch import Tensor

from nescio.infer import adjusted, isokinetic, mclmc
from nescio.infer.adapt import shrunk
from nescio.infer.adjusted import AdjustedMCLMC
from nescio.infer.microcanonical import EnergyStep, State

kick, path, refresh, seen = isokinetic.kick, isokinetic.path, isokinetic.refresh, EnergyStep.seen


def setting(module: Any, name: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(module, name, value)


def change_times(factor: Callable[[int], float]) -> Callable[[pytest.MonkeyPatch], None]:
    """The kinetic change of a kick, multiplied by a function of the dimension."""

    def broken(v: Tensor, gradient: Tensor, size: float) -> tuple[Tensor, Tensor]:
        turned, change = kick(v, gradient, size)
        return turned, factor(v.shape[1]) * change

    return setting(isokinetic, "kick", broken)


def kick_by_d(v: Tensor, gradient: Tensor, size: float) -> tuple[Tensor, Tensor]:
    """d instead of d - 1 in the equations of motion: turned too little."""
    return kick(v, gradient, size * (v.shape[1] - 1) / v.shape[1])


def without_volume(*given: Any) -> tuple[Any, Tensor]:
    """Accept on the density alone."""
    end, _ = path(*given)
    return end, given[3].log_density.double() - end.log_density.double()


def always_accepted(*given: Any) -> tuple[Any, Tensor]:
    end, error = path(*given)
    return end, torch.zeros_like(error)


def half_the_time(patch: pytest.MonkeyPatch) -> None:
    """Both half refreshes are for half of their time."""
    for name, right in (("refresh", refresh), ("disturbed", isokinetic.disturbed)):
        patch.setattr(mclmc, name, lambda v, z, size, length, right=right: right(v, z, size / 2, length))


def one_direction(_: Any, like: Tensor) -> Tensor:
    """Momenta are never refreshed."""
    return torch.eye(like.shape[1], dtype=like.dtype)[:1].expand_as(like)


def never_shrinks(self: EnergyStep, error: Tensor, failed: Tensor, goals: Sequence[float]) -> EnergyStep:
    return seen(self, error, torch.zeros_like(failed), goals)


def mismatched(patch: pytest.MonkeyPatch) -> None:
    """The number of steps is taken from a length half of that which was tuned."""
    patch.setattr(adjusted, "jittered", lambda mean, uniform: checks.jittered(max(mean / 2, 1.0), uniform))


def keeps_tuning(patch: pytest.MonkeyPatch) -> None:
    """Adaptation goes on after the warm-up."""
    step = AdjustedMCLMC.step

    def broken(self: AdjustedMCLMC, target: Any, state: State, batch: Any, noise: Any) -> Any:
        new, info = step(self, target, state, batch, noise)
        size = new.step_size.update(float(info.acceptance.mean()), self.acceptance)  # type: ignore[union-attr]
        return new._replace(step_size=size), info

    patch.setattr(AdjustedMCLMC, "step", broken)


def longer(v: Tensor, gradient: Tensor, size: float) -> tuple[Tensor, Tensor]:
    """Directions that a kick makes a thousandth longer."""
    turned, change = kick(v, gradient, size)
    return 1.001 * turned, change


def floored(spread: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """As in Stan."""
    full, own = shrunk(spread, n)
    floor = torch.full_like(own, 1e-3 * 5 / (n + 5))
    return full + (floor if full.dim() == 1 else floor.diag()), own + floor


FAULTS = [
    Fault("directions not normalised", setting(isokinetic, "normalise", lambda v: v), checks.check_unit_norm),
    Fault("kicks that lengthen directions", setting(isokinetic, "kick", longer), checks.check_unit_norm),
    Fault("kinetic change with the wrong sign", change_times(lambda d: -1.0), checks.check_volume),
    Fault("kinetic change with d instead of d - 1", change_times(lambda d: d / (d - 1)), checks.check_volume),
    Fault("d / (d - 1) seen by the energy identity", change_times(lambda d: d / (d - 1)), checks.check_energy_identity),
    Fault("kicks with d instead of d - 1", setting(isokinetic, "kick", kick_by_d), checks.check_equations),
    Fault("McLachlan's number off", setting(isokinetic, "B", 0.2), checks.check_step),
    Fault(
        "half refresh forgotten",
        setting(mclmc, "disturbed", lambda v, z, size, length: v),
        checks.check_decoherence,
    ),
    Fault("refresh for half the time", half_the_time, checks.check_decoherence),
    Fault(
        "isokinetic accept step missing", setting(adjusted, "path", always_accepted), checks.check_invariant_gaussian
    ),
    Fault("accept step missing, skewed", setting(adjusted, "path", always_accepted), checks.check_invariant_skewed),
    Fault("accepted without the volume", setting(adjusted, "path", without_volume), checks.check_invariant_gaussian),
    Fault(
        "directions never refreshed", setting(adjusted, "directions", one_direction), checks.check_invariant_gaussian
    ),
    Fault(
        "guard against NaN dead",
        setting(mclmc, "finite", lambda end, error: torch.ones_like(error) > 0),
        checks.check_guard,
    ),
    Fault(
        "preconditioner: variances of 1e-3 added, whatever the scale",
        setting(isokinetic, "shrunk", floored),
        checks.check_narrow,
    ),
    Fault("step size never shrinks", setting(EnergyStep, "seen", never_shrinks), checks.check_guard),
    Fault("step size and length at odds", mismatched, checks.check_tuned_path),
    Fault("isokinetic steps adapted after the warm-up", keeps_tuning, checks.check_tuned_path),
]
