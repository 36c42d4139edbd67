"""The folder of a run: held by one process at a time, and by one run for good, for what is in it fits no other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from nescio.data.source import Source
from nescio.errors import FileError
from nescio.laws.fingerprint import coded, digest, spelled
from nescio.noise import untouched
from nescio.store import locked, read, write
from nescio.target import Target

NAME = "run.safetensors"
LOOKED_AT = 32  # rows


def identity(target: Target, method: object, seed: int, compile: bool | None) -> dict[str, Any]:
    """All that decides what a run computes; of the data a few rows, for all of them may be far away."""
    network = target.model.network
    return {
        "model": target.model.describe(),
        "weights": digest([*network.weights().values(), *network.statistics().values()]),
        "dtype": str(network.like.dtype),
        "device": network.like.device.type,
        "method": signature(method),
        "seed": seed,
        "compile": compile,
        "temperature": target.temperature,
        "rows": target.source.size,
        "data": sampled(target.source),
    }


def signature(method: object) -> str:
    """A method in a form that is the same in another process: what it says, and what functions in it do."""
    return ", ".join([spelled(method), *coded(method)])


def sampled(source: Source) -> str:
    """Of some rows, evenly spaced; nothing where they are drawn anew whenever they are asked for."""
    index = torch.linspace(0, source.size - 1, min(LOOKED_AT, source.size), dtype=torch.float64).round().long()
    with untouched(torch.device("cpu")):
        first, second = (digest(x for x in tree_leaves(source.rows(index)) if isinstance(x, Tensor)) for _ in range(2))
    return first if first == second else "drawn anew"


def made(place: str) -> str:
    """The folder, which now exists."""
    try:
        os.makedirs(place, exist_ok=True)
    except OSError as error:
        got = f"{error.strerror or error} for {place!r}"
        raise FileError("a run must have a folder to write into", got, "choose another folder") from error
    return place


@contextmanager
def claimed(folder: str | os.PathLike[str], own: dict[str, Any]) -> Iterator[str]:
    """Hold the folder, made if need be, for the run that is so described; a FileError if it is another's."""
    place = made(os.fspath(folder))
    with locked(place):
        path, own = os.path.join(place, NAME), json.loads(json.dumps(own))
        if os.path.lexists(path):
            _, found = read(path)
            differs = [name for name in own if found.get(name) != own[name]]
            if differs:
                got = f"{place!r} with another " + ", ".join(
                    name if isinstance(own[name], dict) else f"{name} ({found.get(name)}, now {own[name]})"
                    for name in differs
                )
                remedy = "choose another folder, or pass what the run was begun with"
                raise FileError("a folder must be gone on with by the run that began it", got, remedy)
        else:
            write(path, {}, own)
        yield place
