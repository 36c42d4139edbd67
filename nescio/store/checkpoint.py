"""Checkpoints of a run: whole files, two of them, so that one is good whatever happens to the other."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from torch import Tensor

from nescio.errors import FileError, InputError
from nescio.store.atomic import disk_error, file_name, sweep
from nescio.store.tensors import _scan, read, write

KEPT = 2
_NAME = re.compile(r"checkpoint-(0|[1-9]\d*)\.safetensors")


class Checkpoint(NamedTuple):
    """What was saved at a step; the note says which damaged checkpoints were passed over, if any."""

    step: int
    tensors: dict[str, Tensor]
    header: dict[str, object]
    note: str | None


def save_checkpoint(
    folder: str | os.PathLike[str], step: int, tensors: dict[str, Tensor], header: dict[str, object]
) -> None:
    """Write the checkpoint, then remove those before the two newest good ones; the caller holds the folder's lock."""
    if type(step) is not int or step < 0:
        raise InputError("step must be a whole number from 0", repr(step), "count the steps of the run")
    place = file_name(folder)
    write(os.path.join(place, f"checkpoint-{step}.safetensors"), tensors, {"step": step, "header": header})
    names = _names(place)
    good = 1  # the one just written was read back
    for old in sorted((s for s in names if s < step), reverse=True):
        if good >= KEPT:
            _remove(os.path.join(place, names[old]))
        else:
            good += _is_good(os.path.join(place, names[old]))
    try:
        sweep(place, _NAME.pattern)
    except OSError as error:
        raise disk_error("what is left of a killed run must be removed", error, place) from error


def newest(folder: str | os.PathLike[str]) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if there is none at all, a FileError if all are damaged."""
    place = file_name(folder)
    names = _names(place)
    passed: list[str] = []
    for step in sorted(names, reverse=True):
        try:
            tensors, content = read(os.path.join(place, names[step]))
            header = content.get("header")
            if content.get("step") != step or not isinstance(header, dict):
                raise FileError("a checkpoint must keep its name", f"that of another step at {names[step]!r}", "")
        except FileError as error:
            passed.append(f"{names[step]} ({error.got})")
            continue
        note = f"used {names[step]} instead of the damaged {', '.join(passed)}" if passed else None
        return Checkpoint(step, tensors, header, note)
    if passed:
        remedy = "restore one from a copy, or remove them to start again"
        raise FileError("one checkpoint at least must be whole", f"in {place!r} " + ", ".join(passed), remedy)
    return None


def _names(place: str) -> dict[int, str]:
    try:
        return {int(found[1]): name for name in os.listdir(place) if (found := _NAME.fullmatch(name))}
    except OSError as error:
        raise disk_error("checkpoints need a folder", error, place) from error


def _is_good(path: str) -> bool:
    try:
        _scan(path, lambda name, tensor: None)
    except FileError:
        return False
    return True


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise disk_error("an old checkpoint must be removed", error, path) from error
