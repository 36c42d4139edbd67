"""Faults planted in the diagnostics, each with the check that must notice it."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_chain_figures as drawn
import test_resume
import test_trace as proof
import torch
from fault import Fault
from faults_laws import instead
from test_diagnose import (
    check_arviz_ebfmi,
    check_autoregression,
    check_ebfmi,
    check_error_of_mean,
    check_missing,
    check_slow,
    check_stuck,
    check_thresholds,
)
from torch import Tensor

import nescio.diagnose.columns as columns
import nescio.diagnose.diagnosis as diagnosis
import nescio.diagnose.kernel as kernel
import nescio.diagnose.problems as problems
import nescio.diagnose.statistics as statistics
from nescio.diagnose.columns import Columns
from nescio.infer import hmc, langevin, resume, sampler
from nescio.posterior import Draws, arviz, mixing
from nescio.report.figures import ranks


def fewer_products(right: Any, x: Tensor) -> Tensor:
    """The divisor n - t of an unbiased autocovariance."""
    n = x.shape[-1]
    return right(x) * n / (n - torch.arange(n))


def circular(right: Any, x: Tensor) -> Tensor:
    """No padding: the end of a chain meets its beginning."""
    n = x.shape[-1]
    power = torch.fft.rfft(x - x.mean(-1, keepdim=True)).abs().square().mean(-2)
    return torch.fft.irfft(power, n=n) / n


def overlapping(right: Any, x: Tensor) -> Tensor:
    """An odd chain split with its middle draw in both halves."""
    half = (x.shape[-1] + 1) // 2
    return torch.cat([x[..., :half], x[..., x.shape[-1] - half :]], dim=-2)


def all_pairs(right: Any, pairs: Tensor) -> Tensor:
    kept = torch.ones_like(pairs, dtype=torch.bool)
    kept[:, -1] = False
    return kept


def one_less(right: Any, self: Columns, q: float) -> Tensor:
    size = self.ordered[0].shape[-1]
    return self.ordered[0][:, max(int((size - 1) * q) - 1, 0)]


def first_of_ties(right: Any, values: Tensor, index: Tensor) -> Tensor:
    size = values.shape[-1]
    place = torch.special.ndtri(columns.plotting_position(1 + torch.arange(size).to(values), size))
    return torch.empty_like(values).scatter_(-1, index, place.expand_as(values))


def pooled_sd(right: Any, c: Columns) -> Tensor:
    """As if all draws were independent."""
    return c.scale * c.x.flatten(1).std(-1) / c.x[0].numel() ** 0.5


def with_n(right: Any, c: Columns) -> Tensor:
    n = c.x.shape[-1]
    return right(c) * n / (n - 1)


def lagless(right: Any, c: Columns) -> Tensor:
    return c.x.diff(dim=-1).square().sum((-1, -2)) / c.x.flatten(1).square().sum(-1)  # about 0, not about the mean


# ---- what travels with the draws -----------------------------------------------------------------------------------------


def a_step_late(right: Any, infos: list[Any], *more: Any) -> Any:
    return right([infos[0], *infos[:-1]], *more)


def axes_mistaken(right: Any, *arguments: Any) -> dict[str, Tensor]:
    """Stacked steps first, and then given the shape that was asked for."""
    return {name: x.mT.reshape(x.shape) for name, x in right(*arguments).items()}


def only_the_last(right: Any, before: Any, info: Any, count: int) -> Any:
    """A divergence counts only if it is that of the step that made the draw."""
    return right(before, info, count)._replace(divergent=info.divergent.long())


def weighed_alike(right: Any, before: Any, info: Any, count: int) -> Any:
    """The last step of a stretch counts as much as all before it."""
    return right(before, info, 1)


def later(right: Any, self: Any, target: Any, state: Any, batch: Any, noise: Any) -> Any:
    """The momentum of this step with the density of the next state."""
    new, info = right(self, target, state, batch, noise)
    return new, info._replace(energy=info.energy + state.log_density - new.log_density)


def warm(right: Any, self: Any, infos: list[Any], step: int, info: Any) -> None:
    """What the warm-up had to say stays, and the draws' own comes after it."""
    infos.append(info)


def first_of_stretch(right: Any, before: Any, info: Any, count: int) -> Any:
    return right(before, info, count)._replace(energy=before.energy)


def backwards(m: pytest.MonkeyPatch) -> None:
    right = Draws.join

    def join(parts: Any, info: Any) -> Draws:
        joined = right(parts, info)
        joined.trace = right(parts[::-1], info).trace
        return joined

    m.setattr(Draws, "join", staticmethod(join))


def without_energy(right: Any, posterior: Draws, quantities: Tensor) -> Any:
    return diagnosis.diagnose(quantities, divergent=posterior.trace.get("divergent"))


def draws_first(right: Any, posterior: Draws) -> Any:
    return {
        name: x.reshape(x.shape[1], x.shape[0], *x.shape[2:]).swapaxes(0, 1) for name, x in right(posterior).items()
    }


def by_chains(right: Any, x: np.ndarray, noise: Any) -> np.ndarray:
    """Ties in the order of the chains."""
    return np.argsort(np.argsort(x.ravel(), kind="stable")).reshape(x.shape)


def within_chains(right: Any, x: np.ndarray, noise: Any) -> np.ndarray:
    """Ranks among the draws of the own chain, which are even whatever the chain does."""
    return np.stack([right(chain[None], noise)[0] for chain in x]) * len(x)


def travels() -> None:
    with tempfile.TemporaryDirectory() as folder:
        proof.check_travels(Path(folder))


TRAVELLING: list[Fault] = [
    Fault("trace: energies of the step before", instead(sampler, "traced", a_step_late), proof.check_energy),
    Fault("trace: chains and draws mistaken", instead(sampler, "traced", axes_mistaken), proof.check_energy),
    Fault(
        "trace: energy without the momentum",
        instead(langevin, "energy", lambda right, state, z: -state.log_density),
        partial(proof.check_energy, "MALA"),
    ),
    Fault(
        "trace: energy of the state that was reached",
        instead(hmc.HMC, "step", later),
        proof.check_energy,
    ),
    Fault(
        "trace: infos of the warm-up",
        instead(sampler.Sampler, "remember", warm),
        partial(proof.check_energy, "ULA"),
    ),
    Fault("trace: divergences lost in thinning", instead(sampler, "merged", only_the_last), proof.check_thinning),
    Fault("trace: means of stretches", instead(sampler, "merged", weighed_alike), proof.check_thinning),
    Fault("trace: the first step of a stretch", instead(sampler, "merged", first_of_stretch), proof.check_thinning),
    Fault(
        "trace: infos of a resumed run in another order",
        instead(resume, "expanded", lambda right, *arguments: right(*arguments)[::-1]),
        partial(test_resume.check_resumes, "thinned", 4),
    ),
    Fault("trace: blocks joined backwards", backwards, travels),
    Fault("verdict without energies", instead(mixing, "judged", without_energy), proof.check_verdict),
    Fault("E-BFMI with divisor n", instead(statistics, "of_energy", with_n), check_arviz_ebfmi),
    Fault(
        "ranks: a band for one bar",
        instead(ranks, "bound", lambda right, total, size, draws, tail: right(total, size, draws, tail * 40)),
        drawn.check_independent,
    ),
    Fault("ranks: draws not thinned", instead(ranks, "stride", lambda right, x: 1), drawn.check_thinned),
    Fault("ranks: ties in the order of chains", instead(ranks, "ranks", by_chains), drawn.check_ties),
    Fault("ranks: each chain among its own", instead(ranks, "ranks", within_chains), drawn.check_planted),
    Fault("ArviZ: chains and draws mistaken", instead(arviz, "by_name", draws_first), proof.check_arviz),
    Fault(
        "ArviZ: depth and leapfrogs exchanged",
        lambda m: m.setattr(arviz, "NAMES", {**arviz.NAMES, "depth": "n_steps", "leapfrogs": "tree_depth"}),
        proof.check_arviz,
    ),
]  # fmt: skip


FAULTS: list[Fault] = [
    *TRAVELLING,
    Fault("R-hat of whole chains", instead(columns, "split", lambda right, x: x), partial(check_slow, "rhat_rank")),
    Fault("bulk ESS of whole chains", instead(columns, "split", lambda right, x: x), partial(check_slow, "ess_bulk")),
    Fault("ESS for the mean of whole chains", instead(columns, "split", lambda right, x: x), partial(check_slow, "ess_mean")),
    Fault("middle draw in both halves", instead(columns, "split", overlapping), partial(check_slow, "ess_mean")),
    Fault("autocovariance with divisor n - t", instead(kernel, "autocovariance", fewer_products), partial(check_slow, "ess_raw")),
    Fault(
        "autocovariance with divisor n - 1",
        instead(kernel, "autocovariance", lambda right, x: right(x) * x.shape[-1] / (x.shape[-1] - 1)),
        partial(check_slow, "ess_raw"),
    ),
    Fault("autocovariance not padded", instead(kernel, "autocovariance", circular), partial(check_slow, "ess_raw")),
    Fault(
        "disagreement of chains left out of ESS",
        instead(kernel, "between", lambda right, x: torch.zeros_like(right(x))),
        partial(check_slow, "ess_raw"),
    ),
    Fault("fold forgotten", instead(statistics, "folded", lambda right, c: c.halves), partial(check_slow, "rhat_rank")),
    Fault("fold forgotten: a stuck chain", instead(statistics, "folded", lambda right, c: c.halves), check_stuck),
    Fault(
        "fold about the mean",
        instead(statistics, "folded", lambda right, c: kernel.split((c.x - c.x.mean((-1, -2), keepdim=True)).abs())),
        partial(check_slow, "rhat_rank"),
    ),
    Fault(
        "ranks without 3/8",
        instead(columns, "plotting_position", lambda right, rank, size: (rank - 0.5) / size),
        partial(check_slow, "ess_bulk"),
    ),
    Fault("ties in the order they came", instead(columns, "scatter_scores", first_of_ties), partial(check_slow, "ess_bulk")),
    Fault("Geyer's pairs not cut off", instead(kernel, "initial_positive", all_pairs), partial(check_slow, "ess_raw")),
    Fault("Geyer's pairs not cut off: the law", instead(kernel, "initial_positive", all_pairs), check_autoregression),
    Fault("Geyer's pairs not monotone", instead(kernel, "monotone", lambda right, pairs: pairs), partial(check_slow, "ess_raw")),
    Fault("ESS not capped", instead(kernel, "least_tau", lambda right, draws: 1e-9), partial(check_slow, "ess_raw")),
    Fault("ESS capped at the number of draws", instead(kernel, "least_tau", lambda right, draws: 1.0), check_autoregression),
    Fault("quantile one draw low: ESS", instead(Columns, "quantile", one_less), partial(check_slow, "ess_tail")),
    Fault("quantile one draw low: error", instead(Columns, "quantile", one_less), partial(check_slow, "mcse_quantile30")),
    Fault(
        "tail ESS the larger of the two",
        instead(torch, "fmin", lambda right, *args: torch.fmax(*args)),
        partial(check_slow, "ess_tail"),
    ),
    Fault(
        "beta quantile without its + 1",
        instead(statistics, "beta_quantile", lambda right, p, a, b: right(p, a - 0.999, b - 0.999)),
        partial(check_slow, "mcse_quantile30"),
    ),
    Fault("error of the mean as if independent", instead(statistics, "error_of_mean", pooled_sd), check_error_of_mean),
    Fault(
        "error of the sd from the ESS for the mean",
        instead(statistics, "of_sd", lambda right, c: statistics.of_mean(c)),
        partial(check_slow, "mcse_sd"),
    ),
    Fault("E-BFMI about zero", instead(statistics, "of_energy", lagless), check_ebfmi),
    Fault(
        "constant chains not noticed",
        instead(kernel, "moves", lambda right, x: torch.ones_like(right(x))),
        partial(check_missing, "constant chains"),
    ),
    Fault(
        "infinite draws taken for zero",
        instead(torch.Tensor, "isfinite", lambda right, x: torch.ones_like(x, dtype=torch.bool)),
        partial(check_missing, "inf"),
    ),
    Fault("stuck chains not looked for", instead(diagnosis, "missing", lambda right, *args: []), check_stuck),
    Fault(
        "old threshold of R-hat",
        lambda patch: patch.setattr(problems, "RHAT", 1.1),
        check_thresholds,
    ),
]  # fmt: skip
