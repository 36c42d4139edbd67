"""BatchBALD (Kirsch et al., 2019): the batch that teaches most together, chosen greedily.

    I(y_1 ... y_b; w) = H[y_1 ... y_b] - Σ_i E_w H[y_i | w],    p(y_1 ... y_b) = (1/S) Σ_s Π_i p_s(y_i)

The joint entropy is exact while the labels of the batch have at most `configurations` values together; beyond that it is estimated from as
many drawn ones. Points that are alike count once, which a batch of the n best by BALD does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from nescio.active.acquisition import BALD, Acquisition, best, expect_fits
from nescio.errors import InputError, UnsupportedError
from nescio.evaluation.doubt import drawn
from nescio.noise import Noise
from nescio.predictive import Predictive

CHUNK = 2**26  # numbers held at a time


@final
@dataclass(frozen=True)
class BatchBALD(Acquisition):
    """`shortlist`: only so many points, the best by BALD, are looked at; None for all of them."""

    configurations: int = 10_000
    shortlist: int | None = 2000

    def __post_init__(self) -> None:
        if self.configurations < 2 or (self.shortlist is not None and self.shortlist < 1):
            got = f"configurations={self.configurations}, shortlist={self.shortlist}"
            raise InputError("BatchBALD needs at least two configurations and one point", got, "keep the defaults")

    def choose(self, predictive: Predictive, n: int, noise: Noise) -> Tensor:
        p = drawn(predictive)  # (draws, points, classes)
        if p.dim() != 3:
            got = f"labels of shape {tuple(p.shape[2:-1])} a point"
            raise UnsupportedError("BatchBALD is for one label a point", got, "use BALD")
        expect_fits(n, p.shape[1])
        kept = torch.arange(p.shape[1])
        if self.shortlist is not None and self.shortlist < len(kept):
            kept = best(BALD().scores(predictive, noise), max(n, self.shortlist), noise)
        p = p[:, kept.to(p.device)].movedim(0, 1).double()  # (points, draws, classes)
        conditional = -torch.xlogy(p, p).sum(-1).mean(1)  # (points,)
        joint = torch.ones(1, p.shape[1], dtype=p.dtype, device=p.device)  # (configurations, draws)
        weights, chosen = torch.ones_like(joint[:, 0]), []  # of the configurations, against their probability
        taken = torch.zeros(len(p), dtype=torch.bool, device=p.device)
        for step in range(n):
            gain = entropies(joint, weights, p) - conditional
            gain[taken] = -torch.inf
            place = int(gain.argmax())
            chosen.append(place)
            taken[place] = True
            joint, weights = self.grown(joint, weights, p, chosen, noise.at("labels", step))
        return kept[torch.tensor(chosen)]

    def grown(
        self, joint: Tensor, weights: Tensor, p: Tensor, chosen: list[int], noise: Noise
    ) -> tuple[Tensor, Tensor]:
        """Π_i p_s(y_i) of all label configurations with the newest point, or of drawn ones."""
        if p.shape[2] ** len(chosen) <= self.configurations:
            wide = joint[:, None] * p[chosen[-1]].T  # (configurations, classes, draws)
            return wide.flatten(0, 1), torch.ones(wide.shape[0] * wide.shape[1], dtype=p.dtype, device=p.device)
        many, draws = self.configurations, p.shape[1]
        source = noise.at("draw").integers(0, draws, many).to(p.device)
        joint = torch.ones(many, draws, dtype=p.dtype, device=p.device)
        for i, place in enumerate(chosen):
            u = noise.at("label", i).to(torch.device("cpu"), p.dtype).uniform(many, 1).to(p.device)
            y = (p[place, source].cumsum(-1) < u).sum(-1).clamp_max(p.shape[2] - 1)
            joint = joint * p[place].T[y]  # (configurations, draws)
        return joint, 1 / (many * joint.mean(1))


def entropies(joint: Tensor, weights: Tensor, p: Tensor) -> Tensor:
    """H of the batch so far and each point, (points,): Σ over configurations and the point's labels, weighed where they were drawn."""
    points, draws, classes = p.shape
    step = max(1, CHUNK // (len(joint) * classes))
    found = []
    for start in range(0, points, step):
        few = p[start : start + step]  # (few, draws, classes)
        q = torch.einsum("ms,nsc->nmc", joint, few) / draws
        found.append(-(torch.xlogy(q, q).sum(-1) * weights).sum(-1))
    return torch.cat(found)
