"""Faults in the draw log, the checkpoints, the states and the lock, each with the check that sees it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from fault import Fault

from nescio.errors import FileError
from nescio.store import (
    DrawLog,
    LogReader,
    atomic,
    checkpoint,
    chunks,
    flatten,
    lock,
    locked,
    newest,
    read_log,
    reader,
    save_checkpoint,
    state,
    tail,
    tensors,
    unflatten,
)

CHUNK = 2 * (8 + 4)  # two draws of one number each


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def logged(path: Path, draws: int = 8, seed: int = 1) -> DrawLog:
    """A log of the numbers 0, 1, 2, ..., flushed and open."""
    log = DrawLog.open(path, 1, torch.float32, {"seed": seed}, None, CHUNK)
    for step in range(log.draws, draws):
        log.append(0, step, torch.full((1, 1), float(step)))
    log.flush()
    return log


def numbers(path: Path, salvage: bool = False) -> list[float]:
    return [x for stretch in read_log(path, salvage).blocks.values() for x in stretch.values.flatten().tolist()]


def ends(path: Path) -> list[int]:
    log = LogReader(path)
    return [log.position, *(log.position for _ in log.stretches())]


# ---- checks ----------------------------------------------------------------------------------------------------------


def check_flips() -> None:
    """A flipped bit in any byte of a chunk: no draw comes back changed."""
    with folder() as place:
        path = place / "log"
        logged(path, 2).close()
        data = path.read_bytes()
        for byte in range(ends(path)[0], len(data)):
            path.write_bytes(data[:byte] + bytes([data[byte] ^ 16]) + data[byte + 1 :])
            assert numbers(path) == []


def check_order() -> None:
    """A log without its second chunk ends after the first; none is passed over in silence."""
    with folder() as place:
        path = place / "log"
        logged(path).close()
        data, at = path.read_bytes(), ends(path)
        path.write_bytes(data[: at[1]] + data[at[2] :])
        assert numbers(path) == [0, 1]
        found = read_log(path, salvage=True)
        assert found.lost == 1


def check_other_log() -> None:
    """A chunk from a log of another run is no chunk of this one."""
    with folder() as place:
        for seed in (1, 2):
            logged(place / str(seed), seed=seed).close()
        mine, theirs = ((place / name).read_bytes() for name in "12")
        at, begin = ends(place / "1"), ends(place / "2")
        (place / "1").write_bytes(mine[: at[1]] + theirs[begin[1] :])
        assert numbers(place / "1") == [0, 1]


def check_cut_back() -> None:
    """Cut back to each number of draws, between chunks and inside them, and gone on with: each draw once."""
    with folder() as place:
        for keep in range(9):
            path = place / str(keep)
            log = logged(path)
            log.truncate_to(keep)
            log.flush()
            assert numbers(path) == [float(i) for i in range(keep)]
            log.close()
            logged(path, 9).close()
            assert numbers(path) == [float(i) for i in range(9)]


def check_too_short() -> None:
    """A log that has lost draws cannot be cut back to a number that it does not hold."""
    with folder() as place:
        logged(place / "log").close()
        os.truncate(place / "log", ends(place / "log")[-1] - 1)
        with logged(place / "log", 0) as log:
            refused = False
            try:
                log.truncate_to(8)
            except FileError:
                refused = True
            assert refused


def check_torn() -> None:
    """After a chunk that was written in half, the next one goes behind whole chunks."""
    with folder() as place, pytest.MonkeyPatch.context() as patch:
        log = logged(place / "log", 4)

        def half(file: int, parts: Any) -> None:
            os.write(file, b"".join(parts)[:50])
            raise OSError(28, "no space")

        patch.setattr(atomic, "_write", half)
        for step in (4, 5):
            try:
                log.append(0, step, torch.full((1, 1), float(step)))
            except FileError:
                assert step == 5
        patch.undo()
        log.flush()
        log.close()
        assert numbers(place / "log") == [0, 1, 2, 3, 4, 5]


def check_flushed() -> None:
    """A flush ends in a call that brings the whole file to the disk."""
    with folder() as place, pytest.MonkeyPatch.context() as patch:
        log = DrawLog.open(place / "log", 1, torch.float32, {})
        log.append(0, 0, torch.ones(1, 1))
        sizes: list[int] = []
        patch.setattr(os, "fsync", lambda file: sizes.append(os.fstat(file).st_size))
        log.flush()
        assert sizes == [os.path.getsize(place / "log")]
        log.close()


def saved(place: Path, *steps: int) -> None:
    for step in steps:
        save_checkpoint(place, step, {"w": torch.full((4,), float(step))}, {"draws": step})


def check_newest() -> None:
    """Of a good checkpoint and a newer one with a flipped bit, the good one is taken, and both are named."""
    with folder() as place:
        saved(place, 9, 10)
        path = place / "checkpoint-10.safetensors"
        data = path.read_bytes()
        path.write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
        found = newest(place)
        assert found is not None
        assert (found.step, found.tensors["w"].tolist()) == (9, [9.0] * 4)
        assert found.note is not None
        assert "checkpoint-9." in found.note and "checkpoint-10." in found.note


def check_kept() -> None:
    """Two good checkpoints are kept, whatever is between them, and 10 is newer than 9."""
    with folder() as place:
        saved(place, 8, 9)
        (place / "checkpoint-9.safetensors").write_bytes(b"")
        saved(place, 10)
        assert (place / "checkpoint-8.safetensors").exists()
        (place / "checkpoint-10.safetensors").write_bytes(b"")
        found = newest(place)
        assert found is not None
        assert found.step == 8


def check_state() -> None:
    """Floats, tensors that are not finite and integer keys come back exactly."""
    strange = torch.tensor([0x7FC01234, 0x3F800000], dtype=torch.int32)  # as floats: a NaN of its own, 1
    tensors_, structure = flatten({3: 0.1 + 0.2, "t": strange.view(torch.float32)})
    with folder() as place:
        save_checkpoint(place, 1, tensors_, {"s": structure})
        found = newest(place)
    assert found is not None
    again = unflatten(found.tensors, found.header["s"])
    assert list(again) == [3, "t"]
    assert again[3] == 0.1 + 0.2
    assert again["t"].dtype == torch.float32
    assert torch.equal(again["t"].view(torch.int32), strange)


def check_lock() -> None:
    """Who comes second is told about the first."""
    with folder() as place, locked(place):
        told = ""
        try:
            with locked(place):
                pass
        except FileError as error:
            told = str(error)
        assert str(os.getpid()) in told


# ---- faults ----------------------------------------------------------------------------------------------------------


def replaced(target: object, name: str, value: object) -> Any:
    return lambda patch: patch.setattr(target, name, value)


def plant_cut_back(by: int) -> Any:
    true_cut = DrawLog.truncate_to

    def shifted(log: DrawLog, draws: int) -> None:
        true_cut(log, max(0, min(log.draws, draws + by)))

    return replaced(DrawLog, "truncate_to", shifted)


def plant_unseeded(patch: pytest.MonkeyPatch) -> None:
    true_take = chunks.take_frame
    true_encode = chunks._encode
    patch.setattr(reader, "take_frame", lambda file, position, size, seed: true_take(file, position, size, 0))
    patch.setattr(chunks, "_encode", lambda frame, parts, seed: true_encode(frame, parts, 0))


def plant_rounded(patch: pytest.MonkeyPatch) -> None:
    true_apart = state._take_apart

    def rounded(value: Any, path: Any, found: Any, nodes: Any) -> None:
        true_apart(float(f"{value:.15g}") if type(value) is float else value, path, found, nodes)

    patch.setattr(state, "_take_apart", rounded)


def plant_string_order(patch: pytest.MonkeyPatch) -> None:
    true_sorted = sorted
    patch.setattr(
        checkpoint, "sorted", lambda s, reverse=False: true_sorted(s, key=str, reverse=reverse), raising=False
    )


FAULTS: list[Fault] = [
    Fault("log: checksums not compared", replaced(chunks, "check_sum", lambda found, stored: None), check_flips),
    Fault("log: sequence numbers not compared", replaced(reader, "check_sequence", lambda *_: None), check_order),
    Fault("log: chunks not tied to their log", plant_unseeded, check_other_log),
    Fault("log: cut back one draw too few", plant_cut_back(1), check_cut_back),
    Fault("log: cut back one draw too many", plant_cut_back(-1), check_cut_back),
    Fault("log: cut back to more than it holds", plant_cut_back(0), check_too_short),
    Fault("log: a torn chunk stays", replaced(tail, "_cut", lambda file, size: None), check_torn),
    Fault("log: flushed, but not to the disk", replaced(tail, "_sync", lambda file: None), check_flushed),
    Fault("checkpoint: the newest taken unseen", replaced(tensors, "_check_seal", lambda *_: None), check_newest),
    Fault("checkpoint: the newest by its name", plant_string_order, check_newest),
    Fault("checkpoint: only one kept", replaced(checkpoint, "KEPT", 1), check_kept),
    Fault("checkpoint: damaged ones counted", replaced(checkpoint, "_is_good", lambda path: True), check_kept),
    Fault("state: floats rounded", plant_rounded, check_state),
    Fault("lock: taken without looking", replaced(lock, "_take", lambda file: True), check_lock),
]
