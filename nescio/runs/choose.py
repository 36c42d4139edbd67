"""What to begin with where nothing was asked for, and the reason, in a sentence, for the user to read."""

from __future__ import annotations

from typing import NamedTuple

from nescio.data import steps
from nescio.expressions import spell
from nescio.infer.default import default
from nescio.model import Model
from nescio.nets.mlp import CLASSES, NUMBERS
from nescio.runs.given import Given

FEW = 100  # rows from which a noise that changes from row to row can be learned
LEAST_SIDE = 16  # pixels, of images that a LeNet takes


class Choice(NamedTuple):
    text: str
    why: str


def choose_net(given: Given) -> Choice:
    if given.images and min(given.x.shape[2:]) >= LEAST_SIDE and given.x.shape[2] == given.x.shape[3]:
        return Choice("lenet5(channels, outputs, size)", "images of equal sides: LeNet-5")
    hidden = CLASSES if given.classes else NUMBERS
    sizes, kind = ", ".join(map(str, hidden.widths)), hidden.activation.__name__
    layers = {1: "one hidden layer", 2: "two hidden layers"}[len(hidden.widths)]
    activation = "" if kind == "ReLU" else f", activation={kind}"
    return Choice(f"mlp(inputs, {sizes}, outputs{activation})", f"{layers} of {hidden.widths[0]} units")


def choose_likelihood(given: Given) -> Choice:
    if given.classes:
        return Choice("Categorical()", f"the target has {len(given.classes)} classes")
    if len(given.y) >= FEW:
        step, why = steps(given.y), f"a numeric target and {len(given.y)} rows: the noise may change from row to row"
        if not step:
            return Choice("Heteroscedastic()", why)
        return Choice(
            f"Heteroscedastic(rounded={step:g})", f"{why}; in steps of {step:g}, so no noise is below rounding"
        )
    return Choice(
        "Gaussian(HalfNormal(1.0))", f"a numeric target and only {len(given.y)} rows: one noise for all of them"
    )


def choose_prior() -> Choice:
    return Choice("Normal(0.0, 1.0)", "inputs and target are standardised")


def choose_method(model: Model, given: Given) -> Choice:
    text = spell(default(model, (given.x, given.y)))
    size = f"{len(given.y)} rows and {model.dim} weights"
    if "MCLMC" in text:
        return Choice(text, f"{size}: small enough for samplers around eight trained networks")
    if "Metropolis" in text:
        return Choice(text, "discrete weights: nothing else can move them")
    return Choice(text, f"{size}: five networks trained from different starts")
