"""Predictions as the columns of a table: a pure function of a predictive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch import distributions as td

from nescio.errors import InputError
from nescio.evaluation import Promise, promise
from nescio.posterior import Posterior
from nescio.predictive import Drawn, Predictive
from nescio.runs.folder import Run
from nescio.runs.given import Given

Columns = dict[str, np.ndarray]


@final
@dataclass(frozen=True, eq=False)
class Rule:
    """When to say "I do not know": at most `risk` of the answers may be wrong, a real one by more than `within`.

    `promise`: the threshold comes from held-out rows, and holds whatever the model believes; else it is the model's own word.
    """

    risk: float
    within: float | None = None
    promise: Promise | None = None

    @property
    def said(self) -> str:
        if self.promise is None:
            how = "" if self.within is None else f" by more than {self.within:g}"
            return f"abstains where an answer would be wrong{how} with probability above {self.risk:g}, by the model's own word"
        made = self.promise
        if not made.coverage:
            return f"abstains everywhere: the held-out rows cannot promise a risk of {self.risk:g} for any of them"
        return (
            f"abstains so that at most {self.risk:.1%} of the answers are wrong, with {made.confidence:.0%} confidence from the "
            f"held-out rows, of which it answers {made.coverage:.0%}"
        )

    def abstain(self, predictive: Predictive) -> np.ndarray:
        one = labelled(predictive)
        answers = one.abstain(self.risk, self.within) if self.promise is None else self.promise.answers(one)
        known = answers.known.cpu().numpy()
        return np.logical_not(known.reshape(len(known), -1).all(1))


def rule(run: Run, posterior: Posterior, given: Given | None, risk: float, within: float | None) -> Rule:
    """A promise where there are held-out rows of classes, else the model's own word."""
    if not 0 < risk < 1:
        raise InputError("a risk lies strictly between 0 and 1", str(risk), "use 0.05 for one wrong answer in twenty")
    if run.inputs.classes:
        if within is not None:
            raise InputError("a tolerance is for numeric targets", f"--within {within:g}", "leave it out for classes")
        if given is None or not given.held_out:
            return Rule(risk)
        return Rule(risk, None, promise(labelled(posterior.predict(given.test_x, draws=200)), given.test_y, risk=risk))
    if within is None:
        must = "a numeric answer is right within a tolerance"
        raise InputError(must, "none", f"add --within AMOUNT in the units of {run.inputs.target[0]}")
    return Rule(risk, within)


def labelled(predictive: Predictive) -> Predictive:
    """Yes and no, a column of one output, as two classes: one label a point."""
    draws = predictive.draws if isinstance(predictive, Drawn) else None
    if not isinstance(draws, td.Bernoulli):
        return predictive
    return Drawn(td.Categorical(probs=torch.cat([1 - draws.probs, draws.probs], -1), validate_args=False))


def columns(predictive: Predictive, run: Run, level: float = 0.9, rule: Rule | None = None) -> Columns:
    """For real targets mean, interval, epistemic and aleatoric standard deviation; for classes the answer and every probability."""
    found = predictive.probabilities
    table = (
        of_numbers(predictive, run.inputs.target, level)
        if found is None
        else of_classes(predictive, run.inputs.classes)
    )
    if rule is not None:
        table["abstain"] = rule.abstain(predictive)
    return table


def of_numbers(predictive: Predictive, targets: tuple[str, ...], level: float) -> Columns:
    low, high = predictive.interval(level)
    parts = {
        "mean": predictive.mean,
        "low": low,
        "high": high,
        "epistemic_sd": predictive.epistemic.sqrt(),
        "aleatoric_sd": predictive.aleatoric.sqrt(),
    }
    if len(targets) == 1:
        return {name: flat(value) for name, value in parts.items()}
    return {f"{target} {name}": flat(x[:, i]) for i, target in enumerate(targets) for name, x in parts.items()}


def of_classes(predictive: Predictive, classes: tuple[str, ...]) -> Columns:
    found = predictive.probabilities
    assert found is not None
    probabilities = found.reshape(-1, len(classes)).cpu().numpy()
    best = probabilities.argmax(1)
    return {
        "prediction": np.array(classes, dtype=object)[best],
        "probability": probabilities.max(1),
        "epistemic_nats": flat(predictive.epistemic),
        "aleatoric_nats": flat(predictive.aleatoric),
        **{f"p({name})": probabilities[:, i] for i, name in enumerate(classes)},
    }


def flat(x: Tensor) -> np.ndarray:
    return x.detach().cpu().double().reshape(-1).numpy()
