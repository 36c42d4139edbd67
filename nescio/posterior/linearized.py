"""The first-order expansion of the network in its weights (Khan et al., 2019; Immer et al., 2021): functions that are exactly Gaussian.

    f(x; w) ≈ f(x; w*) + J(x) (w - w*),   w ~ N(w*, Σ)   ⇒   f(x) ~ N(f(x; w*), J(x) Σ J(x)ᵀ)

No weights are drawn, and J is not multiplied out where Σ has a structure. Under Gaussian noise the predictive is closed-form; classes
need an integral, which a `Link` does (nescio/links.py); any other likelihood meets draws of the functions.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch import distributions as td
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from nescio.errors import UnsupportedError
from nescio.functions import Functions
from nescio.jacobian import Jacobian, quadratic
from nescio.laws.law import unvalidated
from nescio.likelihoods import Bernoulli, Categorical, Gaussian
from nescio.links import Link
from nescio.model import sort
from nescio.network import Params, expect_finite, rows
from nescio.posterior.compiled import of_gaussian
from nescio.posterior.places import places, ranked
from nescio.posterior.posterior import Ends, Posterior, spread_evenly
from nescio.predictive import Drawn, Predictive

if TYPE_CHECKING:
    from nescio.posterior.gaussian import GaussianPosterior

BUDGET = 64 * 2**20  # bytes for the points that are looked at together
MOST_ROWS = 1024


class Outputs(NamedTuple):
    """Gaussian outputs of the network: `mean` as it gives them, `covariance` of their numbers laid end to end."""

    mean: Any  # (points, ...), a dictionary of such for several tasks
    covariance: Tensor  # (points, D, D), or jointly (points, D, points, D)


@final
class Linearized(Posterior):
    """What `GaussianPosterior.linearize()` gives. `sample` draws weights; only predictions are linear in them."""

    def __init__(self, weights: GaussianPosterior, link: Link | None) -> None:
        self.weights, self.link = weights, link
        self.model, self.info = weights.model, weights.info
        self.plans: dict[str, tuple[Jacobian, int]] = {}

    def count(self) -> None:
        return None

    def sample(self, n: int, seed: int = 0) -> Params:
        return self.weights.sample(n, seed)

    def point(self) -> Params:
        return self.weights.point()

    def ends(self) -> Ends:
        return self.weights.ends()

    def compile(self, x: Any = None, factored: bool = False) -> nn.Module:
        """Exact, for a last layer; classes by the probit link."""
        return of_gaussian(self.weights, x, factored, exact=True)

    def header(self) -> dict[str, Any]:
        raise UnsupportedError("a linearised posterior is not stored", "save", "save the one it was made of")

    def tensors(self) -> dict[str, Tensor]:
        raise UnsupportedError("a linearised posterior is not stored", "save", "save the one it was made of")

    # ---- functions ---------------------------------------------------------------------------------------------

    def outputs(self, x: Any, joint: bool = False) -> Outputs:
        """The network's outputs at x as Gaussians: each point by itself, or all of them jointly."""
        expect_finite(x)
        x = self.model.network.here(x)
        count, form = rows(x), str(tree_map(lambda t: (t.shape[1:], t.dtype), x))
        if form not in self.plans:  # found out once for each form of an input
            self.plans[form] = self.planned(x)
        jacobian, wide = self.plans[form]
        more = 16 if self.model.network.like.is_cuda else 1
        step = count if joint else max(1, min(more * MOST_ROWS, more * BUDGET // wide))
        means, covariances = [], []
        for start in range(0, count, step):
            forward = jacobian.forward(tree_map(lambda t, s=start: t[s : s + step], x))
            pieces = forward.pieces(identity(forward.outputs))
            means.append(tree_map(lambda t: t.detach(), forward.f))
            covariances.append((quadratic.joint if joint else quadratic.each)(pieces, self.weights.covariance))
            del forward, pieces  # before the next ones are made
        return Outputs(tree_map(lambda *parts: torch.cat(parts), *means), torch.cat(covariances))

    def planned(self, x: Any) -> tuple[Jacobian, int]:
        """The network's derivative, and how many bytes it takes for one point."""
        only = torch.zeros(self.model.dim, dtype=torch.bool)
        only[self.weights.slots.cpu()] = True
        index = places(self.model.prior, only, "this")
        _, own = ranked(index, self.model.dim, self.weights.slots.device)
        params, _ = sort(self.point(), self.model.likelihood)
        jacobian = Jacobian(self.model.network, params, own, x)
        one = jacobian.forward(tree_map(lambda t: t[:1], x))
        columns = identity(one.outputs)
        wide = self.model.network.bytes_per_point(x) * (2 + len(columns[0])) + 2 * sum(c.nbytes for c in columns)
        return jacobian, wide + sum(piece.cost() for piece in one.pieces(columns))

    def predict(self, x: Any, draws: int | None = 100, seed: int = 0) -> Predictive:
        """Closed-form under `Gaussian` noise and where a link is given; else a mixture over draws of the functions, point by point."""
        f = self.outputs(x)
        _, numbers = sort(self.point(), self.model.likelihood)
        likelihood = self.model.likelihood
        if self.link is not None:
            if not isinstance(likelihood, (Categorical, Bernoulli)) or f.mean.dim() != 2:
                raise UnsupportedError("a link is for labels of points", repr(likelihood), "leave it out")
            cooler = numbers["noise"].square() if isinstance(likelihood, Categorical) else 1.0
            kind = td.Categorical if isinstance(likelihood, Categorical) else td.Bernoulli
            noise = self.model.noise(seed, "link")
            return self.link.predictive(kind, f.mean / cooler, f.covariance / cooler**2, noise)
        if isinstance(likelihood, Gaussian):
            return self.gaussian(f, numbers)
        return Drawn(self.model.observe(*self.drawn(f, 100 if draws is None else draws, seed)))

    def functions(self, x: Any, n: int, seed: int) -> tuple[Any, Params]:
        return self.drawn(self.outputs(x), n, seed)

    def gaussian(self, f: Outputs, numbers: Params) -> Functions:
        """y = loc + scale f + noise, in the units of y."""
        with unvalidated(), torch.enable_grad():
            mean = f.mean.detach().requires_grad_()
            observed = self.model.likelihood.observe(mean, **numbers)
            (slope,) = torch.autograd.grad(observed.mean.sum(), mean)
        flat = slope.flatten(1)
        spread = f.covariance * flat[:, :, None] * flat[:, None, :]
        return Functions(observed.mean.detach(), spread, observed.variance.detach())

    def drawn(self, f: Outputs, draws: int, seed: int) -> tuple[Any, Params]:
        """Functions (draws, points, ...), with the right law at each point, and the likelihood's own numbers."""
        spread_evenly(draws, 1)
        leaves, form = tree_flatten(f.mean)
        flat = torch.cat([leaf.flatten(1) for leaf in leaves], 1)
        values, vectors = torch.linalg.eigh(f.covariance.double())
        root = (vectors * values.clamp_min(0).sqrt()[:, None]).to(flat)
        z = self.model.noise(seed, "functions").normal(draws, *flat.shape, 1)
        parts = (flat + (root @ z)[..., 0]).split([prod(leaf.shape[1:]) for leaf in leaves], -1)
        shaped = [part.reshape(draws, *leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        _, numbers = sort(self.point(), self.model.likelihood)
        return tree_unflatten(shaped, form), {name: x.expand(draws, *x.shape) for name, x in numbers.items()}


def identity(outputs: list[Tensor]) -> list[Tensor]:
    """A column for each number that an example's outputs have, (D, *output) at each of them."""
    sizes = [prod(f.shape[1:]) for f in outputs]
    eye = torch.eye(sum(sizes), dtype=outputs[0].dtype, device=outputs[0].device)
    parts = zip(eye.split(sizes, 1), outputs, strict=True)
    return [part.view(len(part), 1, *f.shape[1:]).expand(len(part), *f.shape) for part, f in parts]
