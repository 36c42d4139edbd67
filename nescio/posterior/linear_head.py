"""A network whose last layer is a linear model, known exactly, on features that are fixed: the neural linear model.

p(w | D, features) is Gaussian, or with unknown noise Gaussian × inverse-gamma (posterior/conjugate.py). It is kept as sums over the data,
so new data are added without the old ones, and everything of it is closed-form: mean, covariance, evidence, predictive.
"""

from __future__ import annotations

import math
from typing import Any, final

import torch
from torch import Tensor, nn

from nescio.errors import FileError, InputError, UnsupportedError
from nescio.functions import Functions, StudentFunctions
from nescio.laws.law import Law
from nescio.likelihoods import Gaussian
from nescio.linalg import Blocks, Dense
from nescio.model import Model, sort
from nescio.network import Params, expect_finite
from nescio.posterior.compiled import Forms, SinglePass, last_layer
from nescio.posterior.conjugate import Inverse, Regression, Sums
from nescio.posterior.draws import within
from nescio.posterior.gaussian import GaussianPosterior
from nescio.posterior.head import Head, features
from nescio.posterior.observed import observed
from nescio.posterior.posterior import Ends, Posterior, spread_evenly
from nescio.predictive import Predictive


@final
class LinearHead(Posterior):
    """`theta` (dim,): the mean, and what is fixed. `temperature`: the posterior's; it multiplies the covariance."""

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        head: Head,
        regression: Regression,
        statistics: Params,
        info: dict[str, Any],
        temperature: float = 1.0,
    ) -> None:
        self.model, self.head, self.regression, self.statistics = model, head, regression, statistics
        self.info, self.temperature = info, temperature
        self.theta = theta.clone()
        self.theta[head.table] = regression.mean.to(theta)
        if isinstance(regression.noise, Inverse):
            shape, rate = regression.inverse_gamma
            self.theta[self.noise_slots()] = (rate / (shape + 1)).to(theta)  # the mode, which always exists

    def __repr__(self) -> str:
        outputs, inputs = self.head.table.shape
        return f"LinearHead({self.head.name!r}, {inputs} features to {outputs} outputs, {int(self.rows)} rows)"

    @property
    def rows(self) -> int:
        return int(self.regression.sums.count)

    def count(self) -> None:
        return None

    def update(self, x: Any, y: Tensor) -> LinearHead:
        """After more data: equal to a fit of all of them. The features stay what they are."""
        like = self.model.network.like
        self.model.likelihood.check(self.model.network.probe(x), y)
        more = Sums.of(self.features(x), standardised(self.model, y.to(like.device)))
        info = {**self.info, "rows": self.rows + len(y)}
        seen = self.regression.seen(more)
        return LinearHead(self.model, self.theta, self.head, seen, self.statistics, info, self.temperature)

    def evidence(self) -> Tensor:
        """log p(D | features), exact."""
        if self.temperature != 1:
            got = f"a temperature of {self.temperature}"
            raise UnsupportedError("the evidence is that of the posterior itself", got, "fit with temperature=1")
        _, scale = units(self.model)
        volume = scale.expand(self.regression.outputs).log().sum() * self.regression.sums.count
        return self.regression.log_evidence - volume

    # ---- functions ---------------------------------------------------------------------------------------------

    def features(self, x: Any) -> Tensor:
        """The basis at x, (points, inputs)."""
        expect_finite(x)
        own, _ = sort(self.point(), self.model.likelihood)
        return features(self.model.network, own, x, self.head)

    def predict(self, x: Any, draws: int | None = 100, seed: int = 0) -> Predictive:
        """Closed form: Gaussian, or Student's t where the noise is unknown. No draws."""
        phi, (loc, scale), like = self.features(x), units(self.model), self.model.network.like
        centre = loc + scale * (phi.double() @ self.regression.mean.mT)
        wide = scale.expand(self.regression.outputs)
        spread = self.temperature * self.regression.spread(phi) * wide[:, None] * wide
        noise = self.regression.noise
        if isinstance(noise, Inverse):
            shape, rate = self.regression.inverse_gamma
            unit = scale.square().expand(centre.shape)
            return StudentFunctions(centre.to(like), spread.to(like), unit.to(like), shape.to(like), rate.to(like))
        known = (wide.square() * noise).expand(centre.shape)
        return Functions(centre.to(like), spread.to(like), known.to(like))

    def sample(self, n: int, seed: int = 0) -> Params:
        """Coherent functions: one draw of the head, and of the noise where it is unknown, for all inputs."""
        spread_evenly(n, 1)
        white = self.model.noise(seed, "sample").to(self.theta.device, torch.float64)
        step = math.sqrt(self.temperature) * self.regression.root(white.normal(n, *self.head.table.shape))
        theta = self.theta.expand(n, -1).clone()
        if isinstance(self.regression.noise, Inverse):
            shape, rate = self.regression.inverse_gamma
            with white.at("noise").scope():
                drawn = rate / torch.distributions.Gamma(shape, torch.ones_like(shape)).sample(
                    (n,)
                )  # (n, 1 or outputs)
            step, theta[:, self.noise_slots()] = step * drawn.sqrt()[:, :, None], drawn.to(theta)
        theta[:, self.head.table] = (self.regression.mean + step).to(theta)
        return {**self.model.named(theta), **{name: x.expand(n, *x.shape) for name, x in self.statistics.items()}}

    def point(self) -> Params:
        """The mean of the head; of an unknown noise the mode of its variance."""
        return {**{name: x[0] for name, x in self.model.named(self.theta[None]).items()}, **self.statistics}

    def ends(self) -> Ends:
        return Ends(self.theta[None], {name: x[None] for name, x in self.statistics.items()})

    def compile(self, x: Any = None, factored: bool = False) -> nn.Module:
        """Exact; with an unknown noise the variances of Student's t."""
        own, numbers = sort(self.point(), self.model.likelihood)
        lower = self.regression.posterior[0]
        if len(lower) < len(self.head.table):
            return self.gaussian().compile(x)
        root = torch.linalg.solve_triangular(lower.mT, torch.eye(lower.shape[1]).to(lower), upper=True)  # A⁻¹ = R Rᵀ
        root = math.sqrt(self.temperature) * root
        if isinstance(self.regression.noise, Inverse):
            shape, rate = self.regression.inverse_gamma
            if not bool((shape > 1).all()):
                raise InputError("the noise must have a mean", f"a shape of {float(shape.min()):.3g}", "add more rows")
            expected = (rate / (shape - 1)).expand(len(lower))
            root, numbers = expected.sqrt()[:, None, None] * root, {"noise": expected.sqrt().to(self.theta)}
        same = bool((root == root[:1]).all())
        weights = torch.ones(self.head.table.shape).to(root) if same else None
        module = last_layer(self.model.network, own, self.head, Forms(root[0] if same else root, weights))
        return SinglePass(module, observed(self.model, numbers, len(self.head.table)))

    def gaussian(self) -> GaussianPosterior:
        """The same as a Gaussian over weights: for a prior, for a file that others read."""
        if isinstance(self.regression.noise, Inverse):
            raise UnsupportedError(
                "the weights are Gaussian given the noise", "a noise that is unknown", "give it a number"
            )
        blocks = self.temperature * self.regression.covariance()
        slots, rank = self.head.table.reshape(-1).sort()
        back = torch.argsort(rank)  # where each entry of the table is among the sorted ones
        covariance = Blocks(tuple(Dense(block) for block in blocks), back.view(len(blocks), -1).unbind())
        return GaussianPosterior(self.model, self.theta, slots, covariance, self.statistics, dict(self.info))

    def as_prior(self) -> dict[str, Law]:
        return self.gaussian().as_prior()

    def noise_slots(self) -> slice:
        sizes, names = self.model.prior.sizes, [variable.name for variable in self.model.prior.variables]
        i = names.index("likelihood.noise")
        return slice(sum(sizes[:i]), sum(sizes[: i + 1]))

    # ---- files -------------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        told = {"head": self.head.name, "biased": self.head.biased, "temperature": self.temperature}
        return {"kind": "LinearHead", "info": {**self.info, "linear_head": told}}

    def tensors(self) -> dict[str, Tensor]:
        own, noise = self.regression, self.regression.noise
        stored = {"theta": self.theta, "table": self.head.table, "precision": own.precision, "shift": own.shift}
        stored |= {f"sums.{name}": x for name, x in own.sums._asdict().items()}
        stored |= {"shape": noise.shape, "rate": noise.rate} if isinstance(noise, Inverse) else {"noise": noise}
        return {**stored, **{f"statistics.{name}": x for name, x in self.statistics.items()}}

    @staticmethod
    def restore(model: Model, tensors: dict[str, Tensor], info: dict[str, Any]) -> LinearHead:
        told = info.get("linear_head")
        own = {name: x for name, x in info.items() if name != "linear_head"}
        sums = Sums(**{name: tensors[f"sums.{name}"] for name in Sums._fields})
        table, wide = tensors["table"], tensors["precision"].shape
        fits = isinstance(told, dict) and told.keys() == {"head", "biased", "temperature"} and table.dim() == 2
        fits = fits and sums.cross.shape == table.shape and wide[:2].numel() == table.numel() and wide[1:2] == wide[2:]
        if not fits or not isinstance(told, dict):
            raise FileError("a file must hold the sums of its head", f"{told!r} and {tuple(wide)}", "write it again")
        unknown = "noise" not in tensors
        noise = Inverse(tensors["shape"], tensors["rate"]) if unknown else tensors["noise"]
        regression = Regression(sums, tensors["precision"], tensors["shift"], noise)
        head = Head(told["head"], table, bool(told["biased"]))
        left = within("statistics.", tensors)
        return LinearHead(model, tensors["theta"], head, regression, left, own, float(told["temperature"]))


def units(model: Model) -> tuple[Tensor, Tensor]:
    """y = loc + scale z, in double precision."""
    likelihood = model.likelihood
    if not isinstance(likelihood, Gaussian):
        must = "a linear model has Gaussian noise, the same at all points"
        raise UnsupportedError(must, repr(likelihood), "use Laplace(full).on(...) the last layer")
    given, device = (likelihood.loc, likelihood.scale), model.network.like.device
    return tuple(torch.as_tensor(number, dtype=torch.float64, device=device) for number in given)  # type: ignore[return-value]


def standardised(model: Model, y: Tensor) -> Tensor:
    loc, scale = units(model)
    z = (y.double() - loc) / scale
    if not bool(z.isfinite().all()):
        raise InputError("y must be finite", "NaN or infinity", "leave such rows out")
    return z
