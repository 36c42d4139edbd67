"""What expressions may name. It is read off the library's own public lists, so that a new method is there without being entered."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, final

import torch
from torch import nn

import nescio.families
import nescio.infer
import nescio.infer.curvature
import nescio.laws
import nescio.likelihoods
import nescio.nets
from nescio.families.family import Family
from nescio.infer.curvature.structure import Structure
from nescio.infer.method import Method, On, Repeat, Then
from nescio.laws.law import Law, Learned
from nescio.likelihoods.likelihood import Likelihood
from nescio.likelihoods.multitask import MultiTask

ACTIVATIONS = ("ReLU", "Tanh", "SiLU", "GELU", "ELU", "Softplus", "Sigmoid", "LeakyReLU", "Identity")
NORMS = ("BatchNorm2d",)
SCHEDULES = ("Constant", "Cosine", "Cycles", "RMSprop", "Steps")  # and the preconditioner of stochastic gradients
SHAPES = ("Laplace", "Normal", "Gumbel", "Cauchy")  # of torch.distributions, for InverseCDF

# what may stand before a dot: the room that the name behind it is looked up in
PREFIXES = {
    "laws": "laws",
    "families": "families",
    "infer": "methods",
    "likelihoods": "likelihoods",
    "nets": "nets",
    "nn": "activations",
    "optim": "optimizers",
    "distributions": "shapes",
    "functools": "methods",
}
PREFIXES |= {f"nescio.{room}": PREFIXES[room] for room in ("laws", "families", "infer", "likelihoods", "nets")}
PREFIXES |= {f"torch.{room}": PREFIXES[room] for room in ("nn", "optim", "distributions")}


@final
@dataclass(frozen=True)
class Entry:
    """A name, what it stands for, and one line about it."""

    name: str
    value: Any
    line: str


@cache
def catalogue() -> dict[str, dict[str, Entry]]:
    """Room -> name -> entry: methods, families, structures, schedules, optimizers, shapes, laws, likelihoods, nets, activations."""
    infer, curvature = nescio.infer, nescio.infer.curvature
    rooms: dict[str, Iterator[Entry]] = {
        "methods": entries(infer, infer.__all__, concrete(Method), of_module),
        "families": entries(nescio.families, nescio.families.__all__, concrete(Family), of_module),
        "structures": entries(curvature, curvature.__all__, structure, of_module),
        "schedules": entries(infer, SCHEDULES, callable, of_value),
        "optimizers": entries(torch.optim, torch.optim.__all__, concrete(torch.optim.Optimizer), of_nothing),
        "shapes": entries(torch.distributions, SHAPES, callable, of_nothing),
        "laws": entries(nescio.laws, nescio.laws.__all__, law, of_value),
        "likelihoods": entries(nescio.likelihoods, nescio.likelihoods.__all__, observation, of_value),
        "nets": entries(nescio.nets, nescio.nets.__all__, network, of_value),
        "activations": entries(nn, (*ACTIVATIONS, *NORMS), callable, of_nothing),
    }
    found = {room: {entry.name: entry for entry in each} for room, each in rooms.items()}
    combinators = (Then, Repeat, On, partial)
    hidden = {c.__name__: Entry(c.__name__, c, "") for c in combinators}  # as a repr writes them; not listed
    found["hidden"] = hidden
    found["optimizers"]["IVON"] = Entry("IVON", nescio.infer.IVON, "")
    found["activations"]["FilterResponseNorm"] = Entry("FilterResponseNorm", nescio.nets.FilterResponseNorm, "")
    return found


def entries(home: Any, names: Any, wanted: Callable[[Any], bool], describe: Callable[[Any], str]) -> Iterator[Entry]:
    for name in names:
        value = getattr(home, name)
        if wanted(value):
            yield Entry(name, value, describe(value))


def concrete(kind: type) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, type) and issubclass(value, kind) and value is not kind and not inspect.isabstract(value)
    )


def structure(value: Any) -> bool:
    return isinstance(value, Structure) or (inspect.isfunction(value) and not isinstance(value, type))


def law(value: Any) -> bool:
    """Laws, the functions that make some (SpikeSlab), Learned numbers and numbers of the site (fan_in)."""
    made = inspect.isfunction(value) and value.__name__ in ("SpikeSlab", "Horseshoe", "fan_in")
    return concrete(Law)(value) or value is Learned or made


def observation(value: Any) -> bool:
    return concrete(Likelihood)(value) and value is not MultiTask  # several tasks have no text form


def network(value: Any) -> bool:
    return inspect.isfunction(value)


def of_value(value: Any) -> str:
    return first_line(inspect.getdoc(value))


def of_module(value: Any) -> str:
    home = value.__module__ if hasattr(value, "__module__") else type(value).__module__
    return first_line(sys.modules[home].__doc__)


def of_nothing(value: Any) -> str:
    return ""


def first_line(text: str | None) -> str:
    line = (text or "").strip().split("\n")[0]
    return line.rstrip(".:")
