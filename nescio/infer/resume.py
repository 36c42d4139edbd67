"""What a block of chains has behind it: held in memory, or in a folder, so that a run that was killed goes on where it was.

In a folder draws go to a log as they are made and are not held; now and then a checkpoint takes the State, the infos and the
number of draws. Whoever resumes cuts the log back to that number and goes on from that State: noise and shuffles are keyed by step
and epoch, so what follows is what would have followed.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from nescio.errors import FileError, UnsupportedError
from nescio.infer.folder import made
from nescio.noise import Noise
from nescio.store import DrawLog, flatten, newest, read_log, save_checkpoint, unflatten

CHECKPOINT_SECONDS = (
    10.0  # between checkpoints; more where one takes longer than a second, so that they cost a tenth at most
)
DENSITY = "log_density"


class Kept(NamedTuple):
    """A draw: the values, and the log density of the unconstrained vector."""

    theta: Tensor  # (chains, dim of the model)
    log_density: Tensor  # (chains,)
    statistics: dict[str, Tensor]


class Record(ABC):
    """`step`: the first that is yet to be done; `tree`: the frozen State before it, if it is not the first of all."""

    def __init__(self) -> None:
        self.step, self.tree = 0, None
        self.infos: list[Any] = []
        self.held: list[Any] = []  # what is kept in memory
        self.count = 0  # of what was kept
        self.note: str | None = None  # which damaged checkpoints were passed over
        self.code: dict[str, Any] = {}  # of the gradients so far, as posterior.info has it; and by what it was made

    @abstractmethod
    def keep(self, step: int, kept: Any) -> None: ...

    @abstractmethod
    def due(self, over: bool) -> bool:
        """Whether it is time for a checkpoint."""

    @abstractmethod
    def save(self, step: int, tree: Any) -> None: ...

    @abstractmethod
    def states(self, last: Any) -> Sequence[Any]:
        """All that was kept; `last` is what would be kept of the last State."""

    def __enter__(self) -> Record:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@final
class Held(Record):
    """In memory."""

    def keep(self, step: int, kept: Any) -> None:
        self.held.append(kept)
        self.count += 1

    def due(self, over: bool) -> bool:
        return False

    def save(self, step: int, tree: Any) -> None:
        raise AssertionError("never due")

    def states(self, last: Any) -> Sequence[Any]:
        return self.held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


@final
class Stored(Record):
    """In a folder, which the caller holds locked. `first` is the frozen first State, `kept` what would be kept of it."""

    def __init__(self, folder: str, noise: Noise, first: Any, kept: Any) -> None:
        super().__init__()
        self.device = noise.device
        name = name_of(noise)
        self.place, self.path = made(os.path.join(folder, name)), os.path.join(folder, f"{name}.draws")
        found = newest(self.place)
        draws = 0
        if found is not None:
            # cloned: memory from a file may be aligned otherwise than torch's own, and sums then differ in the last bit
            tensors = {key: tensor.clone() for key, tensor in found.tensors.items()}
            content = unflatten(tensors, found.header.get("structure"), {"state": first})
            self.step, self.tree, self.note = found.step, content["state"], found.note
            self.infos, draws = expanded(content["infos"], self.device), content["draws"]
            self.code = dict(found.header.get("code") or {})  # type: ignore[call-overload]
        self.log = None
        if isinstance(kept, Kept):
            width, dtype = kept.theta.shape[1], kept.theta.dtype
            # in double precision, which holds the log density of any method exactly
            self.log = DrawLog.open(self.path, width, dtype, {"block": name}, {DENSITY: torch.float64})
            try:
                self.log.truncate_to(draws)
            except BaseException:
                self.log.close()
                raise
        self.count, self.wait, self.first = draws, CHECKPOINT_SECONDS, False
        self.saved = time.monotonic()

    def keep(self, step: int, kept: Any) -> None:
        self.count += 1
        self.first |= self.count == 1  # the warm-up is over: it should not be done again
        if self.log is not None:
            self.log.append(0, step, kept.theta, {DENSITY: kept.log_density.double()})
        elif self.count > 1:
            must = "with a folder, a method must keep draws, or its last State only"
            raise UnsupportedError(must, f"{type(kept).__name__} again", "keep a Kept, or leave folder out")

    def due(self, over: bool) -> bool:
        return over or self.first or time.monotonic() - self.saved >= self.wait

    def save(self, step: int, tree: Any) -> None:
        began = time.monotonic()
        if self.log is not None:
            self.log.flush()  # before the checkpoint that counts on it
        draws = 0 if self.log is None else self.count
        tensors, structure = flatten({"state": tree, "infos": stacked(self.infos), "draws": draws})
        save_checkpoint(self.place, step, tensors, {"structure": structure, "code": self.code})
        self.saved, self.first = time.monotonic(), False
        self.wait = CHECKPOINT_SECONDS * max(1.0, self.saved - began)

    def states(self, last: Any) -> Sequence[Any]:
        if self.log is None:
            return [last]
        self.log.flush()
        block = read_log(self.path).blocks.get(0)
        if block is None or len(block.steps) != self.count:
            got = f"{0 if block is None else len(block.steps)} in {self.path!r}"
            raise FileError(f"the log must hold the {self.count} draws that were made", got, "call fit again")
        theta, log_density = block.values.to(last.theta), block.scalars[DENSITY].to(last.log_density)
        return [Kept(*draw, last.statistics) for draw in zip(theta, log_density, strict=True)]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.log is not None:
            self.log.close()


def name_of(noise: Noise) -> str:
    """The key of a block as a file name: ("fit", "second", "block", 0) is second.block-0."""
    words: list[str] = []
    for part in noise.key[1:]:
        if isinstance(part, int):
            words[-1] += f"-{part}"
        else:
            words.append(part)
    return ".".join(words)


def stacked(infos: Sequence[Any]) -> dict[str, Any]:
    """Field by field one tensor for all steps, beside where it belongs: a kind of device, or "number" for plain numbers."""
    if not infos:
        return {}
    columns: dict[str, Any] = {}
    for name, values in zip(infos[0]._fields, zip(*infos, strict=True), strict=True):
        like = values[0]
        if isinstance(like, Tensor) and all(x.shape == like.shape and x.dtype == like.dtype for x in values):
            columns[name] = [like.device.type, torch.stack(values)]
        elif type(like) in (bool, int, float) and all(type(x) is type(like) for x in values):
            columns[name] = ["number", torch.tensor(values, dtype=torch.float64 if type(like) is float else None)]
        else:
            columns[name] = ["other", list(values)]
    return columns


def expanded(columns: dict[str, Any], device: torch.device) -> list[Any]:
    """The infos again, as far as the names of their fields go: their class is not stored."""
    if not columns:
        return []
    info = namedtuple("info", columns)  # type: ignore[misc]
    own = []
    for kind, values in columns.values():
        if kind in ("number", "other"):
            own.append(values.tolist() if kind == "number" else values)
        else:
            own.append((values if kind == "cpu" else values.to(device)).unbind())
    return [info(*row) for row in zip(*own, strict=True)]
