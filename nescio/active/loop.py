"""The loop of active learning: train on what is labelled, ask for the labels that would teach most, again.

Every round trains anew, from the network's own weights or a fresh start, as the method has it. With a `folder` each finished round is kept
there; after a kill the same call goes on with the round that was lost, and ends as it would have: all that is random is keyed by the round.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

from torch import Tensor

from nescio.active.acquisition import Acquisition, expect_fits
from nescio.active.pool import Oracle, Pool
from nescio.errors import FileError, InputError
from nescio.evaluation.metrics import evaluate
from nescio.infer.folder import made, signature
from nescio.infer.method import Method, fit
from nescio.model import Model
from nescio.network import rows
from nescio.noise import Noise
from nescio.posterior.posterior import Posterior
from nescio.store import locked, newest, save_checkpoint


class Round(NamedTuple):
    labels: int  # known when the network was trained
    scores: dict[str, float]  # on the test points; empty without them
    asked: list[int]  # rows whose labels were asked for after it


class Learning(NamedTuple):
    rounds: list[Round]
    rows: Tensor  # of the pool, in the order in which they were asked for
    posterior: Posterior  # of the last round

    def needed(self, score: str, at_least: float) -> int | None:
        """The number of labels with which a score first reached this; None if it never did."""
        return next((r.labels for r in self.rounds if r.scores[score] >= at_least), None)


def learn(
    model: Model,
    pool: Any,
    labels: Tensor | Oracle,
    method: Method | Callable[[int], Method],
    acquire: Acquisition,
    *,
    start: Tensor | int,
    batch: int,
    rounds: int,
    test: tuple[Any, Tensor] | None = None,
    draws: int = 100,
    candidates: int | None = None,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[Round], None] | None = None,
) -> Learning:
    """`rounds` times `batch` labels beyond those of `start`: rows, or how many by lot; the last round trains and asks for nothing.

    `labels`: of all rows, or a function of row numbers that is asked. `method`: may depend on the number of labels, as in
    `lambda n: MAP(epochs=50, batch_size=min(128, n))`. `candidates`: so many rows of the pool, by lot, are looked at. `progress` is told
    of each round that asked for labels, when these are known and kept.
    """
    size, noise = rows(pool), Noise(seed).at("active")
    own = Pool.begin(pool, labels, start, noise)
    expect_fits(batch, size)
    if rounds < 0:
        raise InputError("rounds is a whole number of at least 0", str(rounds), "0 trains once and asks for nothing")
    if len(own.chosen) + rounds * batch > size:
        got = f"{len(own.chosen)} + {rounds} x {batch} labels from {size} rows"
        raise InputError("the pool must not run dry", got, "ask for fewer, in fewer rounds, or enlarge the pool")
    expect_seen(labels, test)
    name = {"pool": size, "start": own.chosen.tolist(), "batch": batch, "seed": seed, "draws": draws}
    by_size = (lambda n: method) if isinstance(method, Method) else method
    name |= {"acquire": signature(acquire), "method": signature(by_size(len(own.chosen))), "candidates": candidates}
    place = None if folder is None else made(os.fspath(folder))
    with locked(place) if place is not None else nullcontext():
        own, history = resumed(place, own, name)
        while True:
            now = len(history)
            key = noise.at("round", now)
            posterior = fit(model, own.data(), by_size(len(own.chosen)), seed=key.at("fit").number())
            scores = {} if test is None else evaluate(posterior, test, draws=draws, seed=key.at("test").number())
            if now >= rounds:
                history.append(Round(len(own.chosen), scores, []))
                break
            which = chosen(posterior, own, acquire, batch, draws, candidates, key)
            history.append(Round(len(own.chosen), scores, which.tolist()))
            own = own.bought(which)
            if place is not None:
                header: dict[str, object] = {"name": name, "rounds": [r._asdict() for r in history]}
                save_checkpoint(place, now, {"rows": own.chosen, "labels": own.y}, header)
            if progress is not None:
                progress(history[-1])
    return Learning(history, own.chosen, posterior)


def chosen(
    posterior: Posterior, pool: Pool, acquire: Acquisition, n: int, draws: int, candidates: int | None, key: Noise
) -> Tensor:
    """Rows of the pool, the most wanted first."""
    left = pool.left()
    expect_fits(n, len(left))
    if candidates is not None and candidates < len(left):
        left = left[key.at("candidates").permutations(1, len(left))[0][: max(n, candidates)]]
    predictive = posterior.predict(pool.at(left), draws, key.at("predict").number())
    return left[acquire.choose(predictive, n, key.at("choose"))]


def resumed(folder: str | None, pool: Pool, name: dict[str, Any]) -> tuple[Pool, list[Round]]:
    kept = newest(folder) if folder is not None else None
    if kept is None:
        return pool, []
    if kept.header["name"] != name:
        raise FileError("a folder belongs to one run", f"another's in {folder!r}", "choose another folder")
    history = [Round(**r) for r in kept.header["rounds"]]  # type: ignore[attr-defined]
    return Pool(pool.x, pool.oracle, kept.tensors["rows"], kept.tensors["labels"].to(pool.y.device)), history


def expect_seen(labels: Tensor | Oracle, test: tuple[Any, Tensor] | None) -> None:
    """A class that is only tested can never be learned."""
    if not isinstance(labels, Tensor) or test is None or labels.is_floating_point() or not isinstance(test[1], Tensor):
        return
    never = sorted(set(test[1].unique().tolist()) - set(labels.unique().tolist()))
    if never:
        got = f"class {never} in the test labels only"
        raise InputError("every class that is tested must occur in the pool", got, "leave it out, or add examples")
