r"""The marginal likelihood by Laplace's method (MacKay, 1992; Immer et al., 2021): which prior, which network?

    log p(D) ≈ log p(D | w*) + log p(w*) + d/2 log 2π - ½ log det H,    H = Gauss-Newton - ∂² log p(w*)

Exact where the posterior is Gaussian. It is the evidence *given* everything that Laplace held fixed (`posterior.info["fixed"]`), and
differentiable in the scales of the prior: the mode and the data's curvature do not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from nescio.errors import InputError, UnsupportedError
from nescio.infer.curvature.prior import log_prior, precision
from nescio.laws.law import Law
from nescio.posterior.gaussian import GaussianPosterior
from nescio.posterior.mixture import Mixture
from nescio.posterior.posterior import Posterior


def evidence(posterior: Posterior, numbers: Mapping[str, Tensor] | None = None) -> Tensor:
    """log p(D), a scalar. `numbers`: other values of the prior's scales by their names, `{"prior.*.scale": s}`, to differentiate in.

    Of a mixture, the logarithm of the mean over its parts.
    """
    if isinstance(posterior, Mixture):
        parts = torch.stack([evidence(part, numbers) for part in posterior.parts])
        return parts.logsumexp(0) - math.log(len(parts))
    if not isinstance(posterior, GaussianPosterior) or posterior.curvature is None:
        must, remedy = "the evidence is known at a mode with its curvature", "fit with MAP() >> Laplace()"
        raise UnsupportedError(must, type(posterior).__name__, remedy)
    if posterior.info.get("temperature", 1.0) != 1.0:
        got = f"a temperature of {posterior.info['temperature']}"
        raise UnsupportedError("the evidence is that of the posterior itself", got, "fit with temperature=1")
    prior = posterior.model.prior
    proper(posterior)
    theta = posterior.theta.double() if not numbers else moved(posterior, numbers)
    whole = posterior.curvature + precision(prior, theta, posterior.slots)
    dim = len(posterior.slots)
    joint = posterior.info["log_likelihood"] + log_prior(prior, theta, posterior.slots)
    return joint + 0.5 * (dim * math.log(2 * math.pi) - whole.logdet())


def moved(posterior: GaussianPosterior, numbers: Mapping[str, Tensor]) -> Tensor:
    """The vector with other values of the prior's numbers."""
    prior = posterior.model.prior
    values = prior.split(posterior.theta.double())
    known = {variable.name: i for i, variable in enumerate(prior.variables) if variable.nested}
    for name, value in numbers.items():
        if name not in known:
            raise InputError("a number must be one of the prior's", repr(name), f"the names are {list(known)}")
        i = known[name]
        given = torch.as_tensor(value).double().to(values[i])
        values[i] = (given.square() if getattr(prior.variables[i].law, "root", False) else given).expand(
            values[i].shape
        )
    return torch.cat(values)


def proper(posterior: GaussianPosterior) -> None:
    """A prior that integrates to infinity has no evidence."""
    prior = posterior.model.prior
    for variable, (first, end) in zip(prior.variables, pairwise(accumulate(prior.sizes, initial=0)), strict=True):
        own = bool(((posterior.slots >= first) & (posterior.slots < end)).any())
        if own and isinstance(variable.law, Law) and not variable.law.proper:
            got = f"{variable.law!r} of {variable.name}"
            raise UnsupportedError("the evidence needs a prior that integrates to one", got, "use a proper law")
