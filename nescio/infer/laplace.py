r"""Laplace's approximation: a Gaussian at the mode with the curvature that the posterior has there (MacKay, 1992; Daxberger et al., 2021).

    q(w) = N(w*, T H⁻¹),    H = Σ_n J_nᵀ Λ_n J_n - ∂² log p(w*)

The first part is the Gauss-Newton matrix of all data, in the structure that is asked for (infer/curvature); the second the model's own
prior. Started at a mode (`MAP() >> Laplace(kfac)`), or at a trained network as it is (`Laplace(kfac)`).

Random are the weights of the network, or those that `.on(pattern)` matches. Everything else, noise and scales whether learned or
random, stays where it was: the posterior is the one given those numbers, and `info["fixed"]` names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from nescio.errors import InputError, UnsupportedError
from nescio.infer.begin import from_network
from nescio.infer.curvature.full import Full
from nescio.infer.curvature.kfac import kfac
from nescio.infer.curvature.prior import precision
from nescio.infer.curvature.structure import Structure
from nescio.infer.curvature.sweep import Sweep
from nescio.infer.driver import join
from nescio.infer.method import Method, Run, Start
from nescio.infer.optimise import movable
from nescio.linalg import Blocks, Operator
from nescio.model import Model
from nescio.network import Params
from nescio.noise import Noise
from nescio.posterior.gaussian import GaussianPosterior
from nescio.posterior.places import places, ranked
from nescio.posterior.posterior import Posterior
from nescio.target import Target


@final
@dataclass(frozen=True)
class Laplace(Method):
    """`structure`: diag, kfac, full or low_rank(k). `samples`: the likelihood's curvature from so many draws; None: exact."""

    structure: Structure = kfac
    samples: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.structure, Structure):
            raise InputError(
                "a structure is diag, kfac, full or low_rank(k)", repr(self.structure), "use Laplace(kfac)"
            )
        if self.samples is not None and self.samples < 1:
            raise InputError("samples is at least 1", str(self.samples), "leave it out for the exact curvature")

    def run(self, target: Target, start: Start, run: Run) -> Posterior:
        if target.model.likelihood.estimated:
            must, got = "curvature needs a density", f"{target.model.likelihood!r}, a noisy estimate of a bound"
            raise UnsupportedError(must, got, "use MAP() >> VI(MeanField()).on('decoder.*')")
        if start.ends is None and start.restart:
            got, remedy = f"{start.chains} of {self!r}", f"write {start.chains} * (MAP() >> {self!r})"
            raise InputError("replicas of Laplace need modes of their own", got, remedy)
        ends = from_network(target.model, start, run.noise) if start.ends is None else start.ends
        movable(target.model.prior, target.only, "Laplace")  # refuses what is discrete
        index = places(target.model.prior, target.only, "Laplace")
        if not index:
            must, got = "Laplace needs a weight to be uncertain about", "none left"
            raise InputError(must, got, "check the pattern of .on(...)")
        parts = []
        for chain, theta in enumerate(ends.theta):
            statistics = {name: b[chain] for name, b in ends.statistics.items()}
            parts.append(self.at(target, theta, statistics, index, run.noise.at("chain", chain)))
        return join(parts)

    def at(
        self, target: Target, theta: Tensor, statistics: Params, index: dict[str, Tensor], noise: Noise
    ) -> GaussianPosterior:
        """At one mode."""
        model = target.model
        slots, own = ranked(index, model.dim, theta.device)
        params = {**{name: x[0] for name, x in model.named(theta[None]).items()}, **statistics}
        sweep = Sweep(model, params, own, target.source, self.samples, noise)
        curvature = self.structure.measure(sweep)
        posterior = curvature + precision(model.prior, theta.double(), slots)
        prior = model.prior.unpack(model.prior.pack(theta, centred=True), centred=True)
        info: dict[str, Any] = {
            "log_likelihood": float(sweep.log_likelihood),
            "log_joint": float(sweep.log_likelihood) + float(prior.log_density - prior.log_jacobian),
            "fixed": fixed(model, index),
            "structure": told(curvature, own),
            "hessian": isinstance(self.structure, Full) and self.structure.hessian,
            "samples": self.samples,
            "temperature": target.temperature,
        }
        covariance = posterior.inverse().times(target.temperature)
        return GaussianPosterior(model, theta, slots, covariance, statistics, info, curvature)


def fixed(model: Model, index: dict[str, Tensor]) -> list[str]:
    """What the posterior is conditioned on: names of weights, noise and scales that could have been random or are learned."""
    prior = model.prior
    pairs = zip(prior.outputs, prior.groups, strict=True)
    held = [site.name for output, group in pairs if output.constant is None for site in group.sites]
    partly = [f"{name} (in part)" for name, place in index.items() if bool((place < 0).any())]
    return [name for name in held if name not in index] + partly + [v.name for v in prior.variables if v.nested]


def told(curvature: Operator, index: dict[str, Tensor]) -> dict[str, str]:
    """For each weight the kind of the block that it is in."""
    if not isinstance(curvature, Blocks):
        return dict.fromkeys(index, curvature.kind)
    index = {name: place[place >= 0] for name, place in index.items()}
    kinds = {int(p[0]): op.kind for op, p in curvature.pairs()}
    owner = torch.empty(curvature.size, dtype=torch.long)
    for place in curvature.places:
        owner[place.cpu()] = int(place[0])
    return {name: kinds[int(owner[int(place[0])])] for name, place in index.items()}
