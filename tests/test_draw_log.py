"""The draw log keeps whole chunks through kills, cuts, flips and full disks, and never gives back a wrong draw."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import threading
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from test_store import child
from torch import Tensor

from nescio.errors import FileError, InputError
from nescio.store import DrawLog, LogReader, Stretch, chunks, read_log, tail, write

SCALARS = {"energy": torch.float64, "divergent": torch.bool}
WIDTH, CHAINS, DRAWS = 3, 2, 12
HEADER: dict[str, object] = {"seed": 1}
EACH = 8 + CHAINS * (4 * WIDTH + 8 + 1)  # bytes of a draw
STEPS = ["_add", "_sync", "_cut"]


def draw(step: int, chains: int = CHAINS) -> tuple[Tensor, dict[str, Tensor]]:
    """What a sampler gives at a step: any bits, with NaN and infinities among them."""
    generator = torch.Generator().manual_seed(step)
    bits = torch.randint(-(2**31), 2**31, (chains, WIDTH), generator=generator, dtype=torch.int64)
    energy = torch.tensor([float(step), float("inf")] * chains, dtype=torch.float64)[:chains]
    return bits.int().view(torch.float32), {"energy": energy, "divergent": torch.arange(chains) % 2 == step % 2}


def start(path: Path | str, chunk_draws: int = 3) -> DrawLog:
    return DrawLog.open(path, WIDTH, torch.float32, HEADER, SCALARS, chunk_draws * EACH)


def fill(log: DrawLog, first: int, last: int, block: int = 0) -> None:
    for step in range(first, last):
        log.append(block, 10 * step, *draw(step))


def bits(x: Tensor) -> bytes:
    return bytes(chunks.as_bytes(x.contiguous()))


def count(stretch: Stretch | None) -> int:
    """The number of draws, each of which is the one that was made at its step."""
    if stretch is None:
        return 0
    for row, step in enumerate(stretch.steps.tolist()):
        values, scalars = draw(step // 10, stretch.values.shape[1])
        assert step % 10 == 0
        assert bits(stretch.values[row]) == bits(values)
        assert all(bits(stretch.scalars[name][row]) == bits(scalars[name]) for name in SCALARS)
    assert stretch.values.dtype == torch.float32
    return len(stretch.steps)


def found(path: Path, salvage: bool = False) -> list[int]:
    """The steps of block 0, after a look at every number."""
    stretch = read_log(path, salvage).blocks.get(0)
    count(stretch)
    return [] if stretch is None else [step // 10 for step in stretch.steps.tolist()]


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Path, bytes]:
    path = tmp_path / "log"
    with start(path) as log:
        fill(log, 0, DRAWS)
    return path, path.read_bytes()


def bounds(path: Path) -> list[int]:
    """Where the head ends and where each chunk does."""
    reader = LogReader(path)
    return [reader.position, *(reader.position for _ in reader.stretches())]


# Round trips


@pytest.mark.parametrize("chunk_draws", [1, 3, 5, 100])
def test_round_trip(chunk_draws: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with start(path, chunk_draws) as log:
        fill(log, 0, DRAWS)
        assert log.draws == DRAWS
    assert len(bounds(path)) == 1 + -(-DRAWS // chunk_draws)
    result = read_log(path)
    assert result.header == HEADER
    assert (result.cut, result.lost) == (0, 0)
    assert list(result.blocks) == [0]
    assert count(result.blocks[0]) == DRAWS
    assert result.blocks[0].scalars["divergent"].dtype == torch.bool


@pytest.mark.parametrize("dtype", [*chunks.CODES], ids=str)
def test_every_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    values = torch.randint(0, 2, (5, 2, 7), generator=torch.Generator().manual_seed(1)).to(dtype)
    with DrawLog.open(tmp_path / "log", 7, dtype, {}, {"s": dtype}, 100) as log:
        log.extend(3, range(5), values, {"s": values[..., 0]})
    stretch = read_log(tmp_path / "log").blocks[3]
    assert stretch.values.dtype == stretch.scalars["s"].dtype == dtype
    assert torch.equal(stretch.values, values)
    assert torch.equal(stretch.scalars["s"], values[..., 0])


def test_blocks_of_different_numbers_of_chains_and_steps_that_leap(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with start(path, 4) as log:
        for block, chains in ((0, 2), (7, 5), (2, 1)):
            for step in (0, 1, 5, 30):
                log.append(block, 10 * step, *draw(step, chains))
        log.append(0, 400, *draw(40, 2))  # a block may be gone on with
    blocks = read_log(path).blocks
    assert {b: tuple(s.values.shape) for b, s in blocks.items()} == {0: (5, 2, 3), 7: (4, 5, 3), 2: (4, 1, 3)}
    assert [count(stretch) for stretch in blocks.values()] == [5, 4, 4]


def test_many_at_once_are_the_same_as_one_by_one(whole: tuple[Path, bytes], tmp_path: Path) -> None:
    made = [draw(step) for step in range(DRAWS)]
    with start(tmp_path / "other") as log:
        scalars = {name: torch.stack([s[name] for _, s in made]) for name in SCALARS}
        log.extend(0, range(0, 10 * DRAWS, 10), torch.stack([v for v, _ in made]), scalars)
        log.extend(0, [], made[0][0][:0], {})
    assert (tmp_path / "other").read_bytes() == whole[1]


def test_values_in_a_graph_and_not_contiguous(tmp_path: Path) -> None:
    values = torch.arange(6.0).reshape(3, 2).T.requires_grad_()
    with DrawLog.open(tmp_path / "log", 3, torch.float32, {}) as log:
        log.append(0, 0, values * 1)
        values.detach().zero_()  # the log has its own copy
    assert torch.equal(read_log(tmp_path / "log").blocks[0].values[0], torch.arange(6.0).reshape(3, 2).T)


def test_memory_and_file_are_bounded_by_chunks(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with start(path, 3) as log:
        for step in range(10):
            fill(log, step, step + 1)
            assert len(found(path)) == 3 * ((step + 1) // 3)  # the others are in memory
        log.flush()
        assert len(found(path)) == 10


# What is refused


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    log = start(tmp_path / "log")
    fill(log, 0, 2)
    values, scalars = draw(2)
    wide: Any = "3"
    calls: list[Callable[[], object]] = [
        lambda: log.append(0, 20, values[:, :2], scalars),
        lambda: log.append(0, 20, values[:1], {n: s[:1] for n, s in scalars.items()}),
        lambda: log.append(0, 20, values[0], scalars),
        lambda: log.append(0, 20, values[:0], {n: s[:0] for n, s in scalars.items()}),
        lambda: log.append(0, 20, values.double(), scalars),
        lambda: log.append(0, 20, values),
        lambda: log.append(0, 20, values, {**scalars, "more": scalars["energy"]}),
        lambda: log.append(0, 20, values, {**scalars, "energy": scalars["energy"].float()}),
        lambda: log.append(0, 20, values, {**scalars, "energy": scalars["energy"][:1]}),
        lambda: log.append(0, 10, values, scalars),  # a step that was there
        lambda: log.extend(
            0, [20, 20], torch.stack([values] * 2), {n: torch.stack([s] * 2) for n, s in scalars.items()}
        ),
        lambda: DrawLog.open(tmp_path / "new", 0, torch.float32, {}),
        lambda: DrawLog.open(tmp_path / "new", wide, torch.float32, {}),
        lambda: DrawLog.open(tmp_path / "new", 3, torch.complex64, {}),
        lambda: DrawLog.open(tmp_path / "new", 3, torch.float32, {}, None, 0),
        lambda: DrawLog.open(tmp_path / "new", 3, torch.float32, {"a": {1}}),
    ]
    for call in calls:
        with pytest.raises(InputError) as caught:
            call()
        assert all((caught.value.must, caught.value.got, caught.value.remedy))
    log.append(0, 20, values, scalars)
    log.close()
    assert found(tmp_path / "log") == [0, 1, 2]
    for call in (lambda: fill(log, 3, 4), log.flush):
        with pytest.raises(FileError, match="closed"):
            call()
    log.close()
    assert os.listdir(tmp_path) == ["log"]


def test_what_is_no_log_of_this_run_is_refused(whole: tuple[Path, bytes], tmp_path: Path) -> None:
    path, data = whole
    others: list[Callable[[], object]] = [
        lambda: DrawLog.open(path, WIDTH + 1, torch.float32, HEADER, SCALARS),
        lambda: DrawLog.open(path, WIDTH, torch.float64, HEADER, SCALARS),
        lambda: DrawLog.open(path, WIDTH, torch.float32, HEADER),
        lambda: DrawLog.open(path, WIDTH, torch.float32, {"seed": 2}, SCALARS),
    ]
    for call in others:
        with pytest.raises(FileError, match="as it was begun"):
            call()
    assert path.read_bytes() == data
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("a,b\n1,2\n" * 100)
    write(tmp_path / "tensors", {"w": torch.zeros(1000)}, {})
    os.mkfifo(tmp_path / "pipe")
    for name in ("empty", "text", "tensors", "pipe", "missing", ".", "missing/log"):
        with pytest.raises(FileError):
            read_log(tmp_path / name)
        if name != "missing":
            with pytest.raises(FileError):
                start(tmp_path / name)
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_newer_format_is_refused(whole: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = whole
    path.unlink()
    monkeypatch.setattr("nescio.store.header.FORMAT", 2)
    start(path).close()
    monkeypatch.undo()
    with pytest.raises(FileError, match="newer nescio"):
        read_log(path)


# Damage


def test_every_cut(whole: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut anywhere, the log keeps exactly the chunks before the cut, and is gone on with as if nothing had been."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # slow, and of no account here
    path, data = whole
    ends = bounds(path)
    for size in range(len(data)):
        path.write_bytes(data[:size])
        kept = sum(end <= size for end in ends[1:])
        if size < ends[0]:
            with pytest.raises(FileError):
                read_log(path)
            continue
        result = read_log(path)
        assert count(result.blocks.get(0)) == 3 * kept
        assert result.cut == size - ends[kept]
        with start(path) as log:
            assert log.draws == 3 * kept
            assert log.cut == size - ends[kept]
            fill(log, 3 * kept, DRAWS)
        assert path.read_bytes() == data


def test_two_thousand_flips(whole: tuple[Path, bytes]) -> None:
    """A flipped bit costs the chunks behind it, or only its own when salvaging; no draw is ever wrong."""
    path, data = whole
    ends = bounds(path)
    choose = random.Random(5)
    for _ in range(2000):
        place = choose.randrange(len(data))
        flipped = bytearray(data)
        flipped[place] ^= 1 << choose.randrange(8)
        path.write_bytes(flipped)
        if place < ends[0]:  # there is another head
            assert found(path) == list(range(DRAWS))
            continue
        bad = sum(end <= place for end in ends) - 1
        assert found(path) == list(range(3 * bad))
        assert found(path, salvage=True) == [i for i in range(DRAWS) if i // 3 != bad]


def test_random_bytes_in_the_middle(whole: tuple[Path, bytes]) -> None:
    path, data = whole
    choose = random.Random(6)
    for _ in range(500):
        place, length = choose.randrange(len(data)), choose.randrange(1, 300)
        path.write_bytes(data[:place] + choose.randbytes(length) + data[place + length * choose.randrange(2) :])
        for salvage in (False, True):
            try:
                steps = found(path, salvage)
            except FileError:
                assert place < bounds_of(data)
                continue
            assert steps == sorted(set(steps))
            assert salvage or steps == list(range(len(steps)))


def bounds_of(data: bytes) -> int:
    """The size of the two heads."""
    return 2 * data.index(chunks._MAGIC, 1)


def test_chunks_moved_doubled_or_missing(whole: tuple[Path, bytes]) -> None:
    path, data = whole
    ends = bounds(path)
    head, parts = data[: ends[0]], [data[a:b] for a, b in pairwise(ends)]
    for order in ([1, 0, 2, 3], [0, 0, 1, 2], [0, 2, 3], [0, 1, 3, 2]):
        path.write_bytes(head + b"".join(parts[i] for i in order))
        steps = found(path)
        assert steps == list(range(len(steps))) and len(steps) < DRAWS
        salvaged = found(path, salvage=True)
        assert salvaged == sorted(set(salvaged))
    path.write_bytes(head + parts[0] + parts[2] + parts[3])
    assert read_log(path, salvage=True).lost == 1


def test_a_chunk_of_another_log_is_bad(whole: tuple[Path, bytes], tmp_path: Path) -> None:
    path, data = whole
    other = tmp_path / "other"
    with DrawLog.open(other, WIDTH, torch.float32, {"seed": 2}, SCALARS, 3 * EACH) as log:
        fill(log, 0, DRAWS)
    mine, theirs = bounds(path), bounds(other)
    path.write_bytes(data[: mine[1]] + other.read_bytes()[theirs[1] : theirs[2]] + data[mine[2] :])
    assert found(path) == [0, 1, 2]
    assert found(path, salvage=True) == [0, 1, 2, 6, 7, 8, 9, 10, 11]


def test_a_head_that_says_absurd_things(tmp_path: Path) -> None:
    path = tmp_path / "log"
    columns: list[object] = [
        None,
        [],
        {},
        {"width": 2.5, "dtype": "F32", "scalars": []},
        {"width": 0, "dtype": "F32", "scalars": []},
        {"width": 1, "dtype": "X", "scalars": []},
        {"width": 1, "dtype": "F32", "scalars": [["a"]]},
        {"width": 1, "dtype": "F32", "scalars": 3},
        {"width": 1, "dtype": [], "scalars": []},
    ]
    for content in columns:
        text = chunks.encode({"columns": content, "header": {}}).encode()
        made, _ = chunks._encode(chunks.Frame(0, 0, 0, 0, 0, 0, len(text)), [memoryview(text)], 0)
        path.write_bytes(b"".join(made) * 2)
        with pytest.raises(FileError):
            read_log(path)


def test_chunks_that_lie_with_the_right_checksum(whole: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """No length is believed before it is checked against the file, whoever wrote it."""
    path, data = whole
    head = LogReader(path).head
    good = next(LogReader(path).stretches())
    parts = [chunks.as_bytes(part) for part in good.parts()]
    frame = chunks.Frame(1, 0, 0, 20, CHAINS, 3, sum(map(len, parts)))
    lies = [
        frame._replace(chains=2**60),
        frame._replace(draws=2**60),
        frame._replace(length=2**62),
        frame._replace(chains=0),
        frame._replace(draws=0),
        frame._replace(chains=3, draws=2),
        frame._replace(first=1),
        frame._replace(last=19),
    ]
    for lie in lies:
        path.write_bytes(data[: head.size] + b"".join(chunks._encode(lie, parts, head.seed)[0]))
        assert found(path) == []
    backwards = good.steps.flip(0)
    parts[0] = chunks.as_bytes(backwards)
    path.write_bytes(
        data[: head.size] + b"".join(chunks._encode(frame._replace(first=20, last=0), parts, head.seed)[0])
    )
    assert found(path) == []
    parts = [*[chunks.as_bytes(part) for part in good.parts()][:-1], memoryview(bytes([2] * 6))]
    path.write_bytes(data[: head.size] + b"".join(chunks._encode(frame, parts, head.seed)[0]))
    assert found(path) == []


# Resuming


@pytest.mark.parametrize("chunk_draws", [1, 3, 5, 100])
def test_cut_back_and_gone_on_with(chunk_draws: int, tmp_path: Path) -> None:
    """Cut back to any draw, inside a chunk or between two, and the rest made again: the same draws."""
    path = tmp_path / "log"
    with start(path, chunk_draws) as log:
        fill(log, 0, DRAWS)
    data = path.read_bytes()
    for keep in range(DRAWS + 1):
        path.write_bytes(data)
        with start(path, chunk_draws) as log:
            log.truncate_to(keep)
            assert log.draws == keep
            assert found(path) == list(range(keep))
            fill(log, keep, DRAWS)
        assert found(path) == list(range(DRAWS))
        if keep % chunk_draws == 0:
            assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["log"]


def test_cut_back_counts_over_blocks_and_what_is_in_memory(tmp_path: Path) -> None:
    log = start(tmp_path / "log", 100)
    fill(log, 0, 4, block=0)
    fill(log, 0, 4, block=1)
    log.truncate_to(5)
    assert log.draws == 5
    fill(log, 1, 3, block=1)
    log.close()
    blocks = read_log(tmp_path / "log").blocks
    assert {b: count(s) for b, s in blocks.items()} == {0: 4, 1: 3}


def test_a_log_with_too_few_draws_says_so(whole: tuple[Path, bytes]) -> None:
    path, data = whole
    path.write_bytes(data[:-1])
    with start(path) as log:
        for draws in (12, 10, -1):
            with pytest.raises(FileError, match="9 draws"):
                log.truncate_to(draws)
    assert found(path) == list(range(9))


def test_the_cut_of_a_large_log_is_copied_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nescio.store.log._COPY", 100)
    with start(tmp_path / "log") as log:
        fill(log, 0, DRAWS)
        log.truncate_to(8)
    assert found(tmp_path / "log") == list(range(8))


def test_what_a_killed_writer_left_is_swept_up_and_nothing_else(whole: tuple[Path, bytes], tmp_path: Path) -> None:
    left, other = tmp_path / "log.tmp.12.0011223344556677", tmp_path / "log2.tmp.12.0011223344556677"
    for path in (left, other):
        path.write_bytes(b"x")
    start(whole[0]).close()
    assert (left.exists(), other.exists()) == (False, True)


# Failing disks


@pytest.mark.parametrize("moment", ["before", "half", "after"])
@pytest.mark.parametrize(
    "kind", [OSError(errno.ENOSPC, "planted"), RuntimeError("planted"), KeyboardInterrupt("planted")]
)
@pytest.mark.parametrize("step", STEPS)
def test_a_failed_step_loses_no_draw(
    step: str, kind: BaseException, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log = start(path)
    fill(log, 0, 4)
    if step == "_cut":  # something to cut
        log.flush()
        with open(path, "ab") as file:
            file.write(b"torn")
    true_step = getattr(tail, step)

    def failing(file: int, *more: Any) -> None:
        if step == "_add" and moment == "half":
            os.write(file, bytes(more[0][0])[:40])
        if moment == "after":
            true_step(file, *more)
        raise kind

    monkeypatch.setattr(tail, step, failing)
    expected = FileError if isinstance(kind, OSError) else type(kind)

    def go_on() -> None:
        fill(log, 4, 6)
        log.flush()

    with pytest.raises(expected, match="planted"):
        go_on()
    assert found(path) in ([0, 1, 2], [0, 1, 2, 3], list(range(6)))
    monkeypatch.undo()
    fill(log, log.draws, DRAWS)
    log.close()
    assert found(path) == list(range(DRAWS))
    assert read_log(path).cut == 0


def test_when_even_the_cut_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn chunk that could not be cut off at once is cut off before the next is written."""
    path = tmp_path / "log"
    log = start(path)

    def torn(file: int, parts: list[memoryview]) -> None:
        os.write(file, bytes(parts[0])[:40])
        raise OSError(errno.EIO, "planted")

    def failing(*arguments: object) -> None:
        raise OSError(errno.EIO, "no cut")

    monkeypatch.setattr(tail, "_add", torn)
    monkeypatch.setattr(tail, "_cut", failing)
    with pytest.raises(FileError, match="planted"):
        fill(log, 0, 3)
    assert log.draws == 3
    assert read_log(path).cut == 40
    with pytest.raises(FileError, match="no cut"):
        log.flush()
    monkeypatch.undo()
    fill(log, 3, 7)
    log.close()
    assert found(path) == list(range(7))


def test_a_real_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """The disk is full in the middle of a chunk; the run goes on in memory, and all is written once there is room."""
    path = tmp_path / "log"
    log = start(path)
    fill(log, 0, 3)
    log.flush()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
    refused = 0
    try:
        for step in range(3, 10):
            try:
                fill(log, step, step + 1)
            except FileError as error:
                refused += "limit" in error.remedy
        with pytest.raises(FileError, match="limit"):
            log.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert refused > 0
    assert log.draws == 10
    assert found(path) == [0, 1, 2]
    log.flush()
    log.close()
    assert found(path) == list(range(10))


def test_flush_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = start(tmp_path / "log")
    fill(log, 0, 2)
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fsync", lambda file: seen.append((os.fstat(file).st_ino, os.fstat(file).st_size)))
    log.flush()
    stat = os.stat(tmp_path / "log")
    assert seen == [(stat.st_ino, stat.st_size)]
    log.close()


def test_a_log_cut_by_somebody_else(tmp_path: Path) -> None:
    log = start(tmp_path / "log")
    fill(log, 0, 3)
    os.truncate(tmp_path / "log", 100)
    with pytest.raises(FileError, match="its writer only"):
        fill(log, 3, 6)


# Kills: one child imports torch and forks a writer for each step, which kills itself there

KILLED = """
import os, signal, sys
from test_draw_log import fill, start
from nescio.store import atomic, tail

def dying(module, step, moment, number):
    true_step, calls = getattr(module, step), [0]
    def function(*arguments):
        calls[0] += 1
        if calls[0] < number:
            return true_step(*arguments)
        if moment == "half":
            os.write(arguments[0], b"".join(arguments[1])[:60])
        if moment == "after":
            true_step(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    return function

for folder in sys.argv[1:]:
    place, step, moment, number = os.path.basename(folder).split(".")
    pid = os.fork()
    if pid == 0:
        module = {"tail": tail, "atomic": atomic}[place]
        if step == "_cut":
            with start(folder + "/log") as log:
                fill(log, 0, 4)
            with open(folder + "/log", "ab") as file:
                file.write(b"torn")
            setattr(module, step, dying(module, step, moment, int(number)))
        else:
            setattr(module, step, dying(module, step, moment, int(number)))
        log = start(folder + "/log")
        for first in range(log.draws, 12, 4):
            fill(log, first, first + 4)
            log.flush()
            with open(folder + "/flushed", "w") as file:
                file.write(str(log.draws))
        log.truncate_to(10)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, folder
"""


def test_a_killed_writer_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    """Killed before, in and after each system call of the log, then resumed: the same bytes as without a kill."""
    atoms = ["_open", "_write", "_fsync", "_read_back", "_replace", "_fsync_folder"]
    names = [f"tail._add.{moment}.{n}" for moment in ("before", "half", "after") for n in (1, 2, 3)]
    names += [f"tail._sync.{moment}.{n}" for moment in ("before", "after") for n in (1, 3)]
    names += [f"tail._cut.{moment}.1" for moment in ("before", "after")]
    names += [f"atomic.{step}.{moment}.1" for step in atoms for moment in ("before", "after")]  # the log is created
    names += [f"atomic.{step}.{m}.2" for step in ("_open", "_replace") for m in ("before", "after")]  # or cut through
    folders = [tmp_path / name for name in names]
    for folder in folders:
        folder.mkdir()
    with child(KILLED, *folders) as process:
        assert process.wait() == 0
    (tmp_path / "calm").mkdir()
    with start(tmp_path / "calm" / "log") as log:
        for first in (0, 4, 8):
            fill(log, first, first + 4)
            log.flush()
    for folder in folders:
        flushed = int((folder / "flushed").read_text()) if (folder / "flushed").exists() else 0
        made_again = start(folder / "log")  # created if the kill came before
        least = 10 if folder.name == "atomic._replace.after.2" else flushed
        assert made_again.draws >= least, folder.name
        made_again.truncate_to(least)
        for first in range(least, DRAWS):
            fill(made_again, first, first + 1)
            if first % 4 == 3:
                made_again.flush()
        made_again.close()
        assert found(folder / "log") == list(range(DRAWS)), folder.name
        if least % 4 == 0:
            assert (folder / "log").read_bytes() == (tmp_path / "calm" / "log").read_bytes(), folder.name


# Following


def test_a_reader_follows_a_live_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = start(path)
    total = 300

    def writing() -> None:
        for step in range(total):
            fill(log, step, step + 1)
        log.close()

    writer = threading.Thread(target=writing)
    reader, steps = LogReader(path), []
    writer.start()
    while len(steps) < total:
        alive = writer.is_alive()
        for stretch in reader.stretches():
            assert count(stretch) in (1, 2, 3)
            steps += stretch.steps.tolist()
        assert alive or len(steps) == total
    writer.join()
    assert steps == list(range(0, 10 * total, 10))


def test_a_reader_sees_no_half_written_chunk(whole: tuple[Path, bytes]) -> None:
    path, data = whole
    ends = bounds(path)
    path.write_bytes(data[: ends[0]])
    reader, seen = LogReader(path), 0
    for size in range(ends[0], len(data) + 1):
        path.write_bytes(data[:size])
        seen += sum(count(stretch) for stretch in reader.stretches())
        assert seen == 3 * sum(end <= size for end in ends[1:])


def test_a_reader_is_told_of_a_cut(whole: tuple[Path, bytes]) -> None:
    path, _ = whole
    reader = LogReader(path)
    assert sum(count(stretch) for stretch in reader.stretches()) == DRAWS
    with start(path) as log:
        log.truncate_to(5)
    with pytest.raises(FileError, match="from its start"):
        next(reader.stretches())


def test_reading_holds_one_chunk_and_the_result(tmp_path: Path) -> None:
    """In bytes of tensors: a log of 8 MB in chunks of 1 MiB is scanned in little more than one chunk."""
    path = tmp_path / "log"
    values = torch.arange(1000.0).repeat(10, 1)
    with DrawLog.open(path, 1000, torch.float32, {}) as log:
        for step in range(200):
            log.append(0, step, values + step)
    sizes = [sum(part.nbytes for part in stretch.parts()) for stretch in LogReader(path).stretches()]
    assert max(sizes) <= 1 << 20
    assert sum(sizes) == 200 * (8 + 40_000)
    stretch = read_log(path).blocks[0]
    assert torch.equal(stretch.values, values + torch.arange(200.0)[:, None, None])


def test_the_log_says_who_wrote_it(whole: tuple[Path, bytes]) -> None:
    text = whole[1][chunks._START : bounds_of(whole[1]) // 2 - 4]
    assert set(json.loads(text)) == {"format", "versions", "columns", "header"}


def test_a_disk_that_lies_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that keeps half of each chunk, and says nothing, gives no wrong draws either."""

    def lying(file: int, parts: Iterable[memoryview]) -> None:
        os.write(file, b"".join(parts)[:-20])

    monkeypatch.setattr(tail, "_add", lying)
    log = start(tmp_path / "log")
    fill(log, 0, 3)
    with pytest.raises(FileError, match="its writer only"):
        fill(log, 3, 9)
    assert found(tmp_path / "log") == []
