"""What is known of the weights after the data: something that can be sampled, predicted with, saved, and started from."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nescio.errors import InputError, UnsupportedError
from nescio.laws.law import Law
from nescio.model import Model, sort
from nescio.network import Params
from nescio.predictive import Drawn, Predictive
from nescio.store import write


class Ends(NamedTuple):
    """Where a method ended and the next one starts: values and norm statistics of each chain, nothing else."""

    theta: Tensor  # (chains, dim)
    statistics: Params  # (chains, ...)


class Posterior(ABC):
    """Base of every posterior. `info` says what happened: method, seed, seconds, traces, warnings."""

    model: Model
    info: dict[str, Any]

    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> Params:
        """n draws of every named number, draw axis first: parameters, buffers, `likelihood.*`, `prior.*`."""

    @abstractmethod
    def point(self) -> Params:
        """One good set of parameters: the mean of a parametric posterior, the best member of a set of draws."""

    @abstractmethod
    def count(self) -> int | None:
        """How many draws there are; None if it can be sampled without end."""

    @abstractmethod
    def ends(self) -> Ends: ...

    @abstractmethod
    def header(self) -> dict[str, Any]:
        """Kind, info and structure, as JSON."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """What has to be stored."""

    def predict(self, x: Any, draws: int | None = 100, seed: int = 0) -> Predictive:
        """The predictive at x: stored draws are thinned evenly over chains (None: all), others are sampled."""
        count = self.count()
        if count is not None:
            draws = count if draws is None else min(draws, count)
        return Drawn(self.model.observe(*self.functions(x, 100 if draws is None else draws, seed)))

    def functions(self, x: Any, n: int, seed: int) -> tuple[Any, Params]:
        """What the network gives at x under n draws, (n, points, ...), and the likelihood's own numbers in each of them."""
        own, numbers = sort(self.sample(n, seed), self.model.likelihood)
        with torch.no_grad():
            return self.model.network.outputs(own, x), numbers

    def as_prior(self) -> dict[str, Law]:
        """What is known now as the prior of what comes next: `Model(net, posterior.as_prior(), likelihood)`."""
        remedy = "end with Laplace, SWAG, NeuralLinear or VI(MeanField())"
        raise UnsupportedError("a prior is made of a Gaussian posterior", type(self).__name__, remedy)

    def compile(self, x: Any = None, factored: bool = False) -> nn.Module:
        """A plain module, x -> (mean, epistemic, aleatoric), of one pass and no draws, fit for `torch.export` and ONNX. Of an ensemble, or
        of draws, it is the members themselves, a pass each.

        `x`: an example of an input; by default of the form that the fit had. `factored`: variances of a layer's weights as the product of
        one for each row and one for each column, which is cheaper (nescio/moments/propagation.py).
        """
        remedy = "use n * MAP(), MAP() >> Laplace(...), SWAG, NeuralLinear or VI(MeanField())"
        raise UnsupportedError("a compiled posterior is Gaussian, or one of draws", type(self).__name__, remedy)

    def save(self, path: str | os.PathLike[str]) -> None:
        """One safetensors file with a JSON header; `nescio.load(path, model)` reads it back."""
        write(path, self.tensors(), {"model": self.model.describe(), **self.header()})


def spread_evenly(n: int, bins: int) -> list[int]:
    """n as the sum of `bins` whole numbers that differ by at most one."""
    if n < 1:
        raise InputError("at least one draw must be asked for", str(n), "leave draws out")
    return [n // bins + (i < n % bins) for i in range(bins)]


def evenly(count: int, wanted: int) -> Tensor:
    """`wanted` indices into range(count), evenly spaced; every index again and again where more are wanted than there are."""
    return ((torch.arange(wanted, dtype=torch.float64) + 0.5) * count / max(wanted, 1)).long()
