"""What a rule leaves: by its threshold, or by the rung of a ladder of thresholds that a `Choice` picks."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nescio.compression.choice import Choice
from nescio.compression.judge import Judge
from nescio.compression.moments import Moments
from nescio.compression.rules import Rule, masks
from nescio.network import Params
from nescio.posterior.posterior import Posterior

RUNGS, FEWEST = 40, 2e-3  # how many, and the smallest part that is kept


def applied(
    rule: Rule, posterior: Posterior, given: Moments, alive: dict[str, Tensor], judge: Judge
) -> tuple[dict[str, Tensor], float]:
    """Which weights are left, and the least score of those."""
    scores = rule.scores(posterior, given)
    if not isinstance(rule.threshold, Choice):
        least = rule.least(float(rule.threshold))
        return narrowed(alive, scores, least), least
    pooled = torch.cat([score[alive[name]].reshape(-1).cpu() for name, score in scores.items()]).double().sort().values
    rungs = []
    for rung in range(RUNGS):
        part = FEWEST ** (rung / (RUNGS - 1))
        least = -math.inf if rung == 0 else float(pooled[min(len(pooled) - 1, round(len(pooled) * (1 - part)))])
        rungs.append(judge.trial(rule.threshold, narrowed(alive, scores, least), least, list(scores)))
    chosen = rule.threshold.pick(judge.whole(rule.threshold), rungs)
    return narrowed(alive, scores, chosen.least), chosen.least


def narrowed(alive: dict[str, Tensor], scores: Params, least: float) -> dict[str, Tensor]:
    return {**alive, **{name: alive[name] & mask.to(alive[name].device) for name, mask in masks(scores, least).items()}}
