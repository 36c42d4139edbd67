"""One verb and three combinators.

    fit(model, data, method) -> Posterior

    a >> b      b starts where a ended                       a.then(b)
    n * a       n independent replicas: chains, ensembles    a.repeat(n)
    a.on("head.*")   only what the pattern matches moves, all else stays at the start; several patterns, or a `Selection`

A `Method` is configuration only, a frozen value. Algorithms that go step by step are `Iterative` (iterative.py; run by driver.py).
"""

from __future__ import annotations

import copy
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from os import PathLike
from typing import Any, NamedTuple, final

import torch

from nescio.data.source import Source, source
from nescio.errors import InputError
from nescio.infer.device import usable
from nescio.infer.folder import claimed, identity
from nescio.laws import Laplace
from nescio.laws.fingerprint import spelled
from nescio.model import Model
from nescio.noise import Noise
from nescio.posterior.draws import Draws
from nescio.posterior.mixing import in_functions, in_weights
from nescio.posterior.posterior import Ends, Posterior
from nescio.target import Target, check

LEAST_DRAWS = 4  # a chain from which anything can be said
LOOKED_AT = 20  # data points at which mixing is judged
MOST_DRAWS = 1000  # of a chain, evenly spaced, by which it is judged: a long run is not kept waiting


class Progress(NamedTuple):
    """What a progress callback is told."""

    method: str
    done: int
    total: int
    numbers: dict[str, float]


class Run(NamedTuple):
    """What a method is run with: its random stream, whom to tell, and where to keep what would be lost by a kill."""

    noise: Noise
    progress: Callable[[Progress], None] | None
    folder: str | None = None
    compile: bool | None = None

    def at(self, *key: str | int) -> Run:
        return self._replace(noise=self.noise.at(*key))


class Start(NamedTuple):
    """How many chains, and where: at given ends, else anew. `restart`: members are to differ, so re-run the initialisation."""

    chains: int = 1
    ends: Ends | None = None
    restart: bool = False

    def times(self, n: int) -> Start:
        """Each chain n times; chains that have no start yet are to be started independently."""
        if self.ends is None:
            return Start(self.chains * n, None, restart=True)
        theta = self.ends.theta.repeat_interleave(n, 0)
        statistics = {name: x.repeat_interleave(n, 0) for name, x in self.ends.statistics.items()}
        return Start(self.chains * n, Ends(theta, statistics))


class Method(ABC):
    """Maps a target to a posterior."""

    @abstractmethod
    def run(self, target: Target, start: Start, run: Run) -> Posterior: ...

    def suits(self, model: Model, only: torch.Tensor | None = None) -> None:  # noqa: B027 (most methods suit all models)
        """Raises where method and model do not go together: asked of all parts of a method before the first of them runs.
        `only`: the entries of the vector that may move at all."""

    def then(self, after: Method) -> Method:
        return Then(self, after)

    def repeat(self, n: int) -> Method:
        return Repeat(self, n)

    def on(self, pattern: str | Selection, *more: str) -> Method:
        return On(self, (pattern, *more) if more and isinstance(pattern, str) else pattern)

    def __rshift__(self, after: Method) -> Method:
        return self.then(after)

    def __rmul__(self, n: int) -> Method:
        return self.repeat(n)

    def __mul__(self, n: int) -> Method:
        raise InputError("replicas are written n * method", f"method * {n}", f"write {n} * method")


class Selection(ABC):
    """What `.on` takes in place of a pattern: chooses entries of the vector by looking at the model where a run starts."""

    @abstractmethod
    def run(self, method: Method, target: Target, start: Start, run: Run) -> Posterior:
        """The method on what is chosen."""


@final
@dataclass(frozen=True)
class Then(Method):
    """`first >> second`: latents and norm statistics pass on, nothing else."""

    first: Method
    second: Method

    def __post_init__(self) -> None:
        expect_method(self.second, "what follows >>")

    def __repr__(self) -> str:
        second = f"({self.second!r})" if isinstance(self.second, Then) else repr(self.second)
        return f"{self.first!r} >> {second}"

    def suits(self, model: Model, only: torch.Tensor | None = None) -> None:
        self.first.suits(model, only)
        self.second.suits(model, only)

    def run(self, target: Target, start: Start, run: Run) -> Posterior:
        before = self.first.run(target, start, run.at("first"))
        ends = before.ends()
        after = self.second.run(target, Start(len(ends.theta), ends), run.at("second"))
        after.info["before"] = before.info
        return after


@final
@dataclass(frozen=True)
class Repeat(Method):
    """`n * method`: independent noise, and independent starts unless `>>` gave some."""

    method: Method
    n: int

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or isinstance(self.n, bool) or self.n < 1:
            raise InputError("the number of replicas is a whole number of at least 1", repr(self.n), "write 5 * MAP()")

    def __repr__(self) -> str:
        return f"{self.n} * {bracketed(self.method)}"

    def suits(self, model: Model, only: torch.Tensor | None = None) -> None:
        self.method.suits(model, only)

    def run(self, target: Target, start: Start, run: Run) -> Posterior:
        return self.method.run(target, start.times(self.n), run)


@final
@dataclass(frozen=True)
class On(Method):
    """`method.on(pattern)`: the matching weights and the random scales of their own prior move; all else stays."""

    method: Method
    pattern: str | tuple[str, ...] | Selection

    def __repr__(self) -> str:
        patterns = self.pattern if isinstance(self.pattern, tuple) else (self.pattern,)
        return f"{bracketed(self.method)}.on({', '.join(map(repr, patterns))})"

    def suits(self, model: Model, only: torch.Tensor | None = None) -> None:
        self.method.suits(model, only if isinstance(self.pattern, Selection) else self.within(model, only))

    def run(self, target: Target, start: Start, run: Run) -> Posterior:
        if isinstance(self.pattern, Selection):
            return self.pattern.run(self.method, target, start, run)
        return self.method.run(replace(target, only=self.within(target.model, target.only)), start, run)

    def within(self, model: Model, only: torch.Tensor | None) -> torch.Tensor:
        """What the patterns leave of the entries that may move."""
        patterns = (self.pattern,) if isinstance(self.pattern, str) else self.pattern
        assert not isinstance(patterns, Selection)
        mask = torch.stack([model.prior.slots(pattern) for pattern in patterns]).any(0)
        return mask if only is None else mask & only


def bracketed(method: Method) -> str:
    return f"({method!r})" if isinstance(method, Then | Repeat) else repr(method)


def expect_method(method: object, what: str) -> None:
    if isinstance(method, Method):
        return
    remedy = "write for instance 5 * MAP()"
    if isinstance(method, Laplace):
        remedy = "this Laplace is the prior of nescio.laws: import that of nescio.infer"
    elif isinstance(method, type) and issubclass(method, Method):
        remedy = f"write {method.__name__}()"
    raise InputError(f"{what} must be a Method", repr(method), remedy)


def fit(
    model: Model,
    data: Any,
    method: Method,
    *,
    seed: int = 0,
    temperature: float = 1.0,
    device: str | torch.device | None = None,
    progress: Callable[[Progress], None] | None = None,
    folder: str | PathLike[str] | None = None,
    compile: bool | None = None,
) -> Posterior:
    """The posterior of the model's weights given data, by a method.

    `data`: (x, y) tensors, a Dataset, a DataLoader or batches. The same seed gives the same posterior. `temperature` T targets
    p(θ|D)^(1/T). `progress` is called now and then; the library itself prints nothing.
    `folder`: draws and checkpoints go there while the run lasts. If it is killed, the same call goes on where it was, and its
    posterior is bit for bit that of a run that was not.
    `compile`: gradients as machine code, which takes seconds to make; by default where a run is long enough to gain by it.
    """
    expect_method(method, "method")
    if not isinstance(model, Model):
        raise InputError(
            "fit takes a Model", type(model).__name__, "write Model(net, Normal(0, 1), Gaussian(Learned(1.0)))"
        )
    if not (isinstance(temperature, Real) and 0 < temperature < math.inf):
        raise InputError(
            "the temperature must be a positive number", repr(temperature), "1 is the posterior, below 1 is colder"
        )
    began = time.perf_counter()
    if device is not None:
        model = copy.deepcopy(model).to(usable(device))
    where = model.network.like.device
    given = source(data).to(where)
    check(model, given)
    method.suits(model)
    target = Target(model, given, float(temperature))
    noise = model.noise(seed, "fit")
    if folder is None:
        posterior = method.run(target, Start(), Run(noise, progress, None, compile))
    else:
        with claimed(folder, identity(target, method, seed, compile)) as place:
            posterior = method.run(target, Start(), Run(noise, progress, place, compile))
    judge(posterior, given)
    first = given.rows(torch.arange(1))[0]
    if isinstance(first, torch.Tensor):  # the form of an input, for posterior.compile()
        posterior.info["input"] = {"shape": list(first.shape[1:]), "dtype": str(first.dtype).removeprefix("torch.")}
    posterior.info.update(method=spelled(method), seed=seed, temperature=float(temperature), rows=given.size)
    posterior.info.update(seconds=round(time.perf_counter() - began, 3), device=str(where))
    return posterior


def judge(posterior: Posterior, given: Source) -> None:
    """Have the chains mixed? The answer travels along, with what a sampler itself has to say."""
    blocks = posterior.info.get("blocks", [posterior.info])
    said = [block.pop("problems") for block in blocks if "problems" in block]  # of samplers, however short
    if not isinstance(posterior, Draws) or not (said or posterior.theta.shape[1] >= LEAST_DRAWS):
        return
    few = given.rows(torch.arange(min(LOOKED_AT, given.size)))[0]
    try:
        found = in_functions(posterior, few, MOST_DRAWS).worst()
    except NotImplementedError:  # an own likelihood whose distribution has no mean
        found = in_weights(posterior).worst()
    found["problems"] += [problem for problems in said for problem in problems]
    posterior.info["mixing"] = found
