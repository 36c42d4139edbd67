r"""Data of which few are labelled: the bounds of the semi-supervised model M2 (Kingma et al., 2014).

    labelled:    L(x, y) + weight · log q(y | x),     L(x, y) = log p(y) + E_q log p(x | y, z) - KL(q(z | x, y), p(z))
    unlabelled:  Σ_y q(y | x) [L(x, y) - log q(y | x)]

Both are lower bounds on log p(x, y) and log p(x), but for the last term of the first, which has q(y | x) learn from labels, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from nescio.errors import InputError
from nescio.laws.law import Constraint, Law, Number
from nescio.likelihoods.bound import Bound
from nescio.likelihoods.latent import check_pixels, with_samples, without_encoder
from nescio.likelihoods.likelihood import Likelihood

NONE = -1  # the label of what has none
TASKS = ("image", "label")


@final
@dataclass(frozen=True, eq=False)
class PartlyLabelled(Likelihood):
    """y is {"image": x, "label": class or -1}. `weight`: of log q(y | x) at a labelled datum; the paper's is 0.1 N / labels.

    Model(m2(784, 500, 50), Normal(0, 1), PartlyLabelled(Bernoulli(), weight=60.0))
    """

    pixels: Likelihood
    weight: float = 1.0
    samples: int = 1

    estimated: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_pixels(self.pixels, self.samples)
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise InputError("weight is a finite number of at least 0", repr(self.weight), "try 0.1 N / labels")

    def prepared(self, net: nn.Module) -> nn.Module:
        return with_samples(net, self.samples, "m2(784, 500, 50)")

    def laws(self, prior: Law | Mapping[str, Law], names: Sequence[str]) -> Law | Mapping[str, Law]:
        return without_encoder(prior, names)

    def numbers(self) -> dict[str, tuple[Number, Constraint]]:
        return {f"pixels.{name}": number for name, number in self.pixels.numbers().items()}

    def observe(self, f: dict[str, Tensor], **numbers: Tensor) -> Distribution:
        own = {name.removeprefix("pixels."): x for name, x in numbers.items()}
        q = Normal(f["mean"], f["scale"], validate_args=False)
        return LabelBound(f["logits"], Bound(q, None, f["z"], self.pixels.observe(f["pixels"], **own)), self.weight)

    def check(self, f: Any, y: Any) -> None:
        if not isinstance(f, dict) or "logits" not in f:
            must, remedy = "the network must give q(y | x) and q(z | x, y)", "use nescio.nets.m2"
            raise InputError(must, type(f).__name__, remedy)
        if not isinstance(y, dict) or set(y) != set(TASKS):
            got = str(sorted(y)) if isinstance(y, dict) else type(y).__name__
            raise InputError(f"y must be a dictionary with {list(TASKS)}", got, "give -1 as the label of what has none")
        self.pixels.check(f["pixels"][:, 0, 0], y["image"])
        label, classes = y["label"], f["logits"].shape[-1]
        if label.dtype != torch.int64 or not bool(((label >= NONE) & (label < classes)).all()):
            got = f"{label.dtype}, {int(label.min())} ... {int(label.max())}"
            raise InputError(f"labels must be whole numbers in -1 ... {classes - 1}", got, "-1 stands for no label")


@final
class LabelBound(Distribution):
    """`logits` (..., B, C) of q(y | x); `each`: the bound of x for every class, (..., B, C)."""

    arg_constraints = {}  # noqa: RUF012

    def __init__(self, logits: Tensor, each: Bound, weight: float) -> None:
        self.logits, self.each, self.weight = logits, each, weight
        super().__init__(each.batch_shape[:-1], each.event_shape, validate_args=False)

    def log_density(self, value: dict[str, Tensor], lead: int) -> Tensor:
        """Of {"image", "label"}, (..., B)."""
        image, label = value["image"], value["label"]
        log_q = self.logits.log_softmax(-1)
        bounds = self.each.log_prob(image.unsqueeze(-len(self.event_shape) - 1)) - math.log(log_q.shape[-1])
        labelled = label >= 0
        chosen = label.clamp_min(0)[..., None].expand(*log_q.shape[:-1], 1)
        own, sure = bounds.gather(-1, chosen)[..., 0], log_q.gather(-1, chosen)[..., 0]
        open_ = (log_q.exp() * (bounds - log_q)).sum(-1)
        return torch.where(labelled, own + self.weight * sure, open_)

    @property
    def mean(self) -> Tensor:
        """Of the image, over labels and codes."""
        q = self.logits.softmax(-1)
        return (q.reshape(*q.shape, *[1] * len(self.event_shape)) * self.each.mean).sum(q.dim() - 1)
