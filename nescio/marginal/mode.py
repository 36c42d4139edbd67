r"""The marginal likelihood by Laplace's method (MacKay, 1992; Immer et al., 2021): which prior, which network?

    log p(D) ≈ log p(D | w*) + log p(w*) + d/2 log 2π - ½ log det H,    H = Gauss-Newton - ∂² log p(w*)

Exact where the posterior is Gaussian. It is the evidence *given* everything that Laplace held fixed (`posterior.info["fixed"]`), and
differentiable in these numbers: those of the prior enter by log p(w*) and H alone, those of the likelihood also by its own curvature,
which is a multiple of what it was (one noise for all outputs) or is measured anew with its slope. At a mode the slope is that of the
evidence itself, for the mode moves at right angles to it, up to what it would change in the curvature: nothing in a linear model.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from nescio.data.source import Source, source
from nescio.densities import log_density
from nescio.errors import InputError, UnsupportedError
from nescio.infer.curvature import KFAC, Full, Structure, Sweep, diag, low_rank
from nescio.infer.curvature.prior import log_prior, precision
from nescio.laws.law import Law, unvalidated
from nescio.likelihoods import Gaussian
from nescio.linalg import Blocks, Dense, Diag, LowRank, Operator
from nescio.marginal.learned import Numbers, moved
from nescio.model import sort
from nescio.network import Params
from nescio.noise import Noise
from nescio.posterior.gaussian import GaussianPosterior
from nescio.posterior.linear_head import LinearHead
from nescio.posterior.mixture import Mixture
from nescio.posterior.places import places, ranked
from nescio.posterior.posterior import Posterior

CHUNK = 1024  # rows at a time


def evidence(posterior: Posterior, numbers: Numbers | None = None, data: Any = None) -> Tensor:
    """log p(D), a scalar. `numbers`: other values of learned or random numbers by their names, to compare or to differentiate in:

        s = torch.tensor(2.0, requires_grad=True)
        evidence(posterior, {"prior.*.scale": s}).backward()
        evidence(posterior, {"likelihood.noise": s}, data)

    `data`: what it was fitted to, needed for numbers of the likelihood. Of a mixture, the logarithm of the mean over its parts.
    """
    if isinstance(posterior, Mixture):
        parts = torch.stack([evidence(part, numbers, data) for part in posterior.parts])
        return parts.logsumexp(0) - math.log(len(parts))
    if isinstance(posterior, LinearHead):  # exact, in closed form
        if numbers:
            must, remedy = (
                "a head's evidence is that of its own prior",
                "use NeuralLinear() >> Laplace(full).on(the head)",
            )
            raise UnsupportedError(must, f"other values of {list(numbers)}", remedy)
        return posterior.evidence()
    return AtMode(posterior, data).evidence(numbers or {})


@final
class AtMode:
    """The evidence at one mode as a function of the numbers; what does not change is found once."""

    def __init__(self, posterior: Posterior, data: Any) -> None:
        if not isinstance(posterior, GaussianPosterior) or posterior.curvature is None:
            must, remedy = "the evidence is known at a mode with its curvature", "fit with MAP() >> Laplace()"
            raise UnsupportedError(must, type(posterior).__name__, remedy)
        if posterior.info.get("temperature", 1.0) != 1.0:
            got = f"a temperature of {posterior.info['temperature']}"
            raise UnsupportedError("the evidence is that of the posterior itself", got, "fit with temperature=1")
        proper(posterior)
        self.of, self.curvature, self.data = posterior, posterior.curvature, data

    def evidence(self, numbers: Numbers) -> Tensor:
        prior, slots = self.of.model.prior, self.of.slots
        theta = moved(prior, self.of.theta, numbers)
        curvature, log_likelihood = self.at(theta, numbers)
        whole = curvature + precision(prior, theta, slots)
        joint = log_likelihood + log_prior(prior, theta, slots)
        return joint + 0.5 * (len(slots) * math.log(2 * math.pi) - whole.logdet())

    def posterior(self, numbers: Numbers) -> GaussianPosterior:
        """The same mode with other numbers."""
        of, prior = self.of, self.of.model.prior
        with torch.no_grad():
            theta = moved(prior, of.theta, numbers)
            curvature, log_likelihood = self.at(theta, numbers)
            point = prior.unpack(prior.pack(theta, centred=True), centred=True)
            joint = float(log_likelihood) + float(point.log_density - point.log_jacobian)
            covariance = (curvature + precision(prior, theta, of.slots)).inverse()
        info = {**of.info, "log_likelihood": float(log_likelihood), "log_joint": joint}
        return GaussianPosterior(of.model, theta.to(of.theta), of.slots, covariance, of.statistics, info, curvature)

    def at(self, theta: Tensor, numbers: Numbers) -> tuple[Operator, Tensor]:
        """The data's curvature, and their log likelihood."""
        if not any(name.startswith("likelihood.") for name in numbers):
            return self.curvature, torch.tensor(
                self.of.info["log_likelihood"], dtype=torch.float64, device=theta.device
            )
        model = self.of.model
        params = {**model.prior.params(model.prior.split(theta)), **self.of.statistics}
        own = sort(params, model.likelihood)[1]
        if isinstance(model.likelihood, Gaussian) and own["noise"].numel() == 1:
            before = sort(self.of.point(), model.likelihood)[1]["noise"].double()
            return self.curvature.times((before / own["noise"]).square().sum()), self.log_likelihood(own)
        return self.measured(params)

    def log_likelihood(self, own: Params) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=self.of.theta.device)
        with unvalidated():
            for f, y in self.outputs:
                total = total + log_density(self.of.model.likelihood.observe(f, **own), y, lead=1).sum()
        return total

    @cached_property
    def source(self) -> Source:
        if self.data is None:
            must, remedy = "numbers of the likelihood need the data", "write evidence(posterior, numbers, data)"
            raise InputError(must, "none", remedy)
        return (self.data if isinstance(self.data, Source) else source(self.data)).to(self.of.theta.device)

    @cached_property
    def outputs(self) -> list[tuple[Any, Any]]:
        """(f, y) of all rows, in double precision: neither depends on the numbers."""
        params, found = sort(self.of.point(), self.of.model.likelihood)[0], []
        for start in range(0, self.source.size, CHUNK):
            x, y = self.source.span(start, min(start + CHUNK, self.source.size))
            with torch.no_grad():
                found.append(tree_map(doubled, (self.of.model.network.call(params, x), y)))
        return found

    def measured(self, params: Params) -> tuple[Operator, Tensor]:
        """Anew, by a sweep over the data, with a slope in the numbers that have one."""
        if self.of.info.get("samples") is not None:
            must = "the slope of the curvature in a likelihood's numbers takes the exact one"
            raise UnsupportedError(must, f"samples={self.of.info['samples']}", "leave samples out")
        model = self.of.model
        params = {name: x.to(model.network.like) if x.is_floating_point() else x for name, x in params.items()}
        free = torch.zeros(model.dim, dtype=torch.bool)
        free[self.of.slots.cpu()] = True
        _, index = ranked(places(model.prior, free, "this"), model.dim, self.of.slots.device)
        sweep = Sweep(model, params, index, self.source, None, Noise(0))
        curvature = like(self.curvature, bool(self.of.info.get("hessian"))).measure(sweep)
        return curvature, sweep.log_likelihood.to(self.of.theta.device)


def like(curvature: Operator, hessian: bool) -> Structure:
    """The structure that an operator was measured with."""
    if isinstance(curvature, Diag):
        return diag
    if isinstance(curvature, LowRank):
        return low_rank(len(curvature.weights))
    if isinstance(curvature, Blocks):  # exact blocks are those up to a size
        return KFAC(exact=max((op.size for op in curvature.operators if isinstance(op, Dense)), default=0))
    return Full(hessian)


def proper(posterior: GaussianPosterior) -> None:
    """A prior that integrates to infinity has no evidence."""
    prior = posterior.model.prior
    for variable, (first, end) in zip(prior.variables, pairwise(accumulate(prior.sizes, initial=0)), strict=True):
        own = bool(((posterior.slots >= first) & (posterior.slots < end)).any())
        if own and isinstance(variable.law, Law) and not variable.law.proper:
            got = f"{variable.law!r} of {variable.name}"
            raise UnsupportedError("the evidence needs a prior that integrates to one", got, "use a proper law")


def doubled(x: Any) -> Any:
    return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x
