r"""The neural linear model: Bayesian linear regression on the features of a trained network (Snoek et al., 2015; Ober & Rasmussen, 2019).

    y = w φ(x) + ε,     φ: all of the network but its last layer, fixed

With a Gaussian prior and Gaussian noise everything is exact: mean, covariance, evidence, predictive; and new data are added without
the old ones (`posterior.update(x, y)`). `MAP() >> NeuralLinear()` learns the features first; `NeuralLinear()` takes a network as it is.

The noise is the model's own number and stays where it was. With `scaled=True`, under a model whose noise variance is inverse-gamma,
`Gaussian(InverseGamma(a, b).sqrt())`, it is integrated out, and the predictive is Student's t. That needs a prior in units of the noise:
the law N(loc, scale²) of the last layer is read as w | σ² ~ N(loc, σ² scale²), which is another model than the one as written.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, final

import torch
from torch import Tensor

from nescio.errors import InputError, UnsupportedError
from nescio.infer.begin import from_network
from nescio.infer.curvature.prior import inside, log_prior, precision
from nescio.infer.driver import join
from nescio.infer.laplace import fixed
from nescio.infer.method import Method, Run, Start
from nescio.laws import InverseGamma, Normal
from nescio.laws.remembered import Remembered
from nescio.laws.structured import Structured
from nescio.linalg import Blocks, Diag, Operator
from nescio.model import Model, sort
from nescio.network import Params
from nescio.posterior.conjugate import Inverse, Regression, Sums
from nescio.posterior.head import features, head_of
from nescio.posterior.linear_head import LinearHead, standardised, units
from nescio.posterior.posterior import Posterior
from nescio.target import CHUNK, Target

GAUSSIAN = (Normal, Structured, Remembered)
LARGEST = 8192  # weights that a prior may tie together


@final
@dataclass(frozen=True)
class NeuralLinear(Method):
    """`scaled`: the prior is in units of the noise, whose variance is unknown and integrated out."""

    scaled: bool = False

    def run(self, target: Target, start: Start, run: Run) -> Posterior:
        if start.ends is None and start.restart:
            got, remedy = f"{start.chains} of {self!r}", f"write {start.chains} * (MAP() >> {self!r})"
            raise InputError("replicas of a neural linear model need features of their own", got, remedy)
        ends = from_network(target.model, start, run.noise) if start.ends is None else start.ends
        parts = []
        for chain, theta in enumerate(ends.theta):
            parts.append(self.at(target, theta, {name: b[chain] for name, b in ends.statistics.items()}))
        return join(parts)

    def at(self, target: Target, theta: Tensor, statistics: Params) -> LinearHead:
        model, source = target.model, target.source
        units(model)  # refuses other likelihoods
        named = {**{name: x[0] for name, x in model.named(theta[None]).items()}, **statistics}
        own, numbers = sort(named, model.likelihood)
        few = source.rows(torch.arange(min(2, source.size)))[0]
        head = head_of(model.network, model.prior, own, few, target.only, "NeuralLinear")
        head = head._replace(table=head.table.to(theta.device))
        sums: Sums | None = None
        for first in range(0, source.size, CHUNK):
            x, y = source.rows(torch.arange(first, min(first + CHUNK, source.size)))
            part = Sums.of(features(model.network, own, x, head), standardised(model, y))
            sums = part if sums is None else sums.plus(part)
        assert sums is not None
        noise = numbers["noise"].double().square().expand(len(head.table)).contiguous()
        if self.scaled:
            if target.temperature != 1:
                raise UnsupportedError("an unknown noise needs temperature 1", str(target.temperature), "leave it out")
            noise = unknown_noise(model)
        regression = Regression(sums, *gaussian_prior(model, theta, head.table), noise)
        if isinstance(noise, Inverse) and len(regression.precision) == 1 < len(head.table) == len(noise.shape):
            must, got = "outputs with noises of their own must have priors of their own", "a prior that ties them"
            raise UnsupportedError(must, got, "use one noise for all outputs")
        held = fixed(model, {f"{head.name}.{leaf}" if head.name else leaf: head.table for leaf in ("weight", "bias")})
        info: dict[str, Any] = {"fixed": [n for n in held if not (self.scaled and n == "likelihood.noise")]}
        info["units"] = "the prior of the last layer is in units of the noise" if self.scaled else "as in the model"
        return LinearHead(model, theta, head, regression, statistics, info, target.temperature)


def gaussian_prior(model: Model, theta: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """P (blocks, q, q) and P m₀ (blocks, q) of the last layer: a block for each output, or one where the prior ties them together."""
    prior, slots = model.prior, table.reshape(-1)
    for variable, _, _ in inside(prior, slots):
        law = prior.variables[variable].law
        if not isinstance(law, GAUSSIAN):
            raise UnsupportedError("a conjugate last layer has a Gaussian prior", repr(law), "use Normal, or Laplace")
    values = theta.double().clone()
    values[slots] = 0.0
    values.requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(log_prior(prior, values, slots), values)  # of a Gaussian at zero: P m₀
    shift = slope[slots].view(table.shape)
    curved = precision(prior, theta.double(), slots)
    if isinstance(curved, Diag):
        return torch.diag_embed(curved.values.view(table.shape)), shift
    if apart(curved, table.shape[1]):
        whole = curved.dense().view(*table.shape, *table.shape)
        return torch.stack([whole[o, :, o] for o in range(len(table))]), shift
    if len(slots) > LARGEST:
        got = f"{len(slots)} weights"
        raise UnsupportedError(f"a prior can tie at most {LARGEST} weights together", got, "use Normal")
    return curved.dense()[None], shift.reshape(1, -1)


def apart(curved: Operator, inputs: int) -> bool:
    """Whether no block of the prior holds weights of two outputs."""
    if not isinstance(curved, Blocks) or curved.size > LARGEST:
        return False
    return all(isinstance(op, Diag) or len((place // inputs).unique()) == 1 for op, place in curved.pairs())


def unknown_noise(model: Model) -> Inverse:
    law = getattr(model.likelihood, "noise", None)
    if not isinstance(law, InverseGamma) or not law.root:
        must = "scaled=True needs a noise variance that is inverse-gamma"
        raise UnsupportedError(must, repr(law), "write Gaussian(InverseGamma(2., 1.).sqrt())")
    names = [f.name for f in fields(law) if "constraint" in f.metadata]
    position = [variable.name for variable in model.prior.variables].index("likelihood.noise")
    readings = model.prior.variables[position].readings
    if any(readings[name].constant is None for name in names):
        raise UnsupportedError("the noise's own numbers must be constant", repr(law), "give InverseGamma two numbers")
    size = model.prior.sizes[position]
    given = model.prior.variables[position].numbers([])
    return Inverse(*(given[name].double().expand(size).contiguous() for name in names))
