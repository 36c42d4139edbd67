"""What to begin with where nothing was asked for, and the reason, in a sentence, for the user to read."""

from __future__ import annotations

from typing import NamedTuple

from nescio.data import steps
from nescio.expressions import spell
from nescio.infer.default import default
from nescio.likelihoods import Gaussian
from nescio.likelihoods.numbers import to_begin_with
from nescio.model import Model
from nescio.nets.mlp import CLASSES, NUMBERS
from nescio.runs.given import Given

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
    rows, step = len(given.y), steps(given.y)
    likelihood = to_begin_with(rows, step)
    if isinstance(likelihood, Gaussian):
        return Choice(spell(likelihood), f"a numeric target and only {rows} rows: one noise for all of them")
    floor = f"; in steps of {step:g}, so no noise is below rounding" if step else ""
    return Choice(spell(likelihood), f"a numeric target and {rows} rows: the noise may change from row to row{floor}")


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
