"""Checkpoints, states and locks: what is saved comes back to the bit, and a run that is killed anywhere goes on as if it had not been."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store import child, same
from torch import Tensor

from nescio.errors import FileError, InputError
from nescio.noise import Noise
from nescio.store import DrawLog, flatten, locked, newest, read_log, save_checkpoint, unflatten


class Adaptation(NamedTuple):
    log_step: float
    count: int
    mass: Tensor


class State(NamedTuple):
    theta: Tensor  # (chains, dim)
    adaptation: Adaptation
    best: object


def state(number: int) -> State:
    theta = Noise(number).normal(2, 3)
    return State(theta, Adaptation(number / 3, number, theta[0].double() ** 2), {"loss": float("inf"), 3: [None, True]})


def content(number: int) -> tuple[dict[str, Tensor], dict[str, object]]:
    return {"theta": torch.full((50,), float(number))}, {"draws": 10 * number}


def save(folder: Path, *numbers: int) -> None:
    for number in numbers:
        save_checkpoint(folder, number, *content(number))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def equal(a: Any, b: Any) -> bool:
    """Equal to the bit and in kind."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        x, y = (t.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(x, y)
    if isinstance(a, dict):
        return list(a) == list(b) and all(type(x) is type(y) and equal(a[x], b[y]) for x, y in zip(a, b, strict=True))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return repr(a) == repr(b)


# Checkpoints


def test_the_two_newest_are_kept(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    for number in (0, 5, 9, 10, 100):
        save(tmp_path, number)
        found = newest(tmp_path)
        assert found is not None
        assert (found.step, found.note) == (number, None)
        assert same((found.tensors, found.header), content(number))
    assert names(tmp_path) == ["checkpoint-10.safetensors", "checkpoint-100.safetensors"]


def test_the_same_step_again_replaces(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    save_checkpoint(tmp_path, 2, {"theta": torch.ones(3)}, {"again": True})
    found = newest(tmp_path)
    assert found is not None
    assert found.header == {"again": True}
    assert len(names(tmp_path)) == 2


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[:-7])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.write_bytes(data[:-7] + bytes([data[-7] ^ 4]) + data[-6:])


@pytest.mark.parametrize("how", ["cut", "empty", "flip", "renamed"])
def test_a_damaged_one_is_passed_over_and_both_are_named(how: str, tmp_path: Path) -> None:
    save(tmp_path, 10, 20)
    if how == "renamed":
        (tmp_path / "checkpoint-20.safetensors").rename(tmp_path / "checkpoint-30.safetensors")
    else:
        damage(tmp_path / "checkpoint-20.safetensors", how)
    found = newest(tmp_path)
    assert found is not None
    assert found.step == 10
    assert same((found.tensors, found.header), content(10))
    assert found.note is not None
    assert "checkpoint-10.safetensors" in found.note
    assert f"checkpoint-{30 if how == 'renamed' else 20}.safetensors" in found.note


def test_bit_flips_never_give_a_wrong_state(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    path = tmp_path / "checkpoint-2.safetensors"
    data = path.read_bytes()
    choose = random.Random(1)
    for _ in range(500):
        flipped = bytearray(data)
        flipped[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        path.write_bytes(flipped)
        found = newest(tmp_path)
        assert found is not None
        assert same((found.tensors, found.header), content(found.step))
        assert found.step == 1


def test_when_all_are_damaged_nothing_starts_anew_in_silence(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    for name in names(tmp_path):
        damage(tmp_path / name, "cut")
    with pytest.raises(FileError, match=r"checkpoint-2\.safetensors.*checkpoint-1\.safetensors"):
        newest(tmp_path)


def test_a_good_one_is_not_given_up_for_a_damaged_one(tmp_path: Path) -> None:
    """Of 1, 2 (damaged) and 3 it is 2 that cannot be counted on; once there are two good ones, the others go."""
    save(tmp_path, 1, 2)
    damage(tmp_path / "checkpoint-2.safetensors", "flip")
    save(tmp_path, 3)
    assert [name[11] for name in names(tmp_path)] == ["1", "2", "3"]
    save(tmp_path, 4)
    assert [name[11] for name in names(tmp_path)] == ["3", "4"]


def test_going_on_from_an_earlier_one(tmp_path: Path) -> None:
    save(tmp_path, 10, 20)
    damage(tmp_path / "checkpoint-20.safetensors", "cut")
    save(tmp_path, 15)
    assert (found := newest(tmp_path)) is not None
    assert found.step == 15
    save(tmp_path, 20)
    assert (found := newest(tmp_path)) is not None
    assert (found.step, found.note) == (20, None)
    assert names(tmp_path) == ["checkpoint-15.safetensors", "checkpoint-20.safetensors"]


def test_what_a_killed_writer_left_is_swept_up_and_nothing_else(tmp_path: Path) -> None:
    left = tmp_path / "checkpoint-3.safetensors.tmp.123.0011223344556677"
    others = [tmp_path / name for name in ("checkpoint-x.safetensors", "draws.tmp.1.ab", "checkpoint-03.safetensors")]
    for path in (left, *others):
        path.write_bytes(b"x")
    save(tmp_path, 1, 2, 3)
    assert not left.exists()
    assert all(path.exists() for path in others)


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    wrong: Any = "3"
    for step in (-1, wrong, True):
        with pytest.raises(InputError, match="step"):
            save_checkpoint(tmp_path, step, {}, {})
    for call in (newest, lambda folder: save_checkpoint(folder, 1, {}, {})):
        with pytest.raises(FileError, match="create the folder first"):
            call(tmp_path / "missing")
    assert names(tmp_path) == []


def test_a_full_disk_leaves_the_old_ones(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        with pytest.raises(FileError, match="limit"):
            save_checkpoint(tmp_path, 3, {"theta": torch.zeros(10_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [name[11] for name in names(tmp_path)] == ["1", "2"]
    assert (found := newest(tmp_path)) is not None
    assert found.step == 2


def test_an_old_one_that_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1, 2)

    def failing(path: str) -> None:
        raise PermissionError(13, "planted")

    monkeypatch.setattr(os, "unlink", failing)
    with pytest.raises(FileError, match="planted"):
        save(tmp_path, 3)
    monkeypatch.undo()
    assert (found := newest(tmp_path)) is not None
    assert found.step == 3


# States


def round_trip(state: Any, folder: Path, like: Any = None) -> Any:
    """Through a file."""
    tensors, structure = flatten(state)
    save_checkpoint(folder, 1, tensors, {"structure": structure})
    found = newest(folder)
    assert found is not None
    return unflatten(found.tensors, found.header["structure"], like)


def test_a_state_comes_back_to_the_bit(tmp_path: Path) -> None:
    assert equal(round_trip(state(7), tmp_path, state(1)), state(7))
    nested: Any = {
        "a/b": torch.tensor([1.0, float("nan"), -float("inf"), -0.0]),
        "a": {"b": torch.tensor(3), 5: torch.zeros(0, 2), -(10**30): 10**30},
        "s": ["ünï", "", True, False, None, 0, 1, 0.1, -0.0, 5e-324, float("inf"), float("nan"), (), [], {}],
        "t": (
            (torch.tensor(True),),
            torch.tensor([2**63 - 1]),
            torch.tensor(1 + 2j),
            torch.tensor([1], dtype=torch.uint16),
        ),
        "v": torch.arange(6.0).reshape(2, 3).T,
        "b": torch.tensor([1.0, float("inf")], dtype=torch.bfloat16),
        "p": torch.zeros(2, dtype=torch.complex128).conj(),
    }
    assert equal(round_trip(nested, tmp_path), nested)
    for leaf in (None, 3, 2.5, "x", False, torch.ones(2)):
        assert equal(round_trip(leaf, tmp_path), leaf)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(exclude_categories=["Cs"]))
)
STATES = st.recursive(
    LEAVES
    | st.builds(lambda n, d: torch.arange(n).to(d), st.integers(0, 4), st.sampled_from([torch.int8, torch.float64])),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.integers() | st.text(st.characters(exclude_categories=["Cs"])), inner)
        | st.builds(State, st.just(torch.ones(2)), st.just(Adaptation(0.1, 2, torch.zeros(1))), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(state=STATES)
def test_any_state_comes_back(state: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert equal(round_trip(state, tmp_path_factory.getbasetemp(), like=state), state)


def test_an_optimiser_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    def begin() -> tuple[Tensor, torch.optim.Optimizer]:
        weights = Noise(1).normal(4).requires_grad_()
        return weights, torch.optim.Adam([{"params": [weights], "lr": 0.1}], amsgrad=True)

    def go_on(weights: Tensor, optimiser: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            (weights**4).sum().backward()
            optimiser.step()

    weights, optimiser = begin()
    go_on(weights, optimiser, 5)
    saved = round_trip({"weights": weights, "optimiser": optimiser.state_dict()}, tmp_path)
    go_on(weights, optimiser, 5)
    again, other = begin()
    again.data.copy_(saved["weights"])
    other.load_state_dict(saved["optimiser"])
    go_on(again, other, 5)
    assert torch.equal(again, weights)
    assert equal(other.state_dict(), optimiser.state_dict())


def test_lists_may_be_longer_than_those_of_the_template(tmp_path: Path) -> None:
    assert equal(round_trip([state(1), state(2), state(3)], tmp_path, [state(0)]), [state(1), state(2), state(3)])
    assert equal(round_trip({"a": [torch.ones(1)]}, tmp_path, {"a": []}), {"a": [torch.ones(1)]})


def test_the_template_says_the_device(tmp_path: Path) -> None:
    """meta stands for any other device."""
    found = round_trip({"a": torch.ones(3), "b": torch.ones(2)}, tmp_path, {"a": torch.ones(3, device="meta")})
    assert found["a"].device.type == "meta"
    assert found["b"].device.type == "cpu"


def test_an_ordered_dictionary_comes_back_as_a_plain_one() -> None:
    assert equal(unflatten(*flatten(OrderedDict(b=1, a=2.0))), {"b": 1, "a": 2.0})


def test_what_is_no_state_is_refused() -> None:
    import numpy as np

    circle: list[Any] = []
    circle.append(circle)
    for bad in (object(), {1, 2}, np.float64(1.0), np.zeros(2), b"x", {2.5: 1}, {(1,): 1}, torch.Size([1]), circle, 1j):
        with pytest.raises(InputError):
            flatten({"a": bad})


def test_a_structure_that_does_not_fit_is_refused() -> None:
    tensors, structure = flatten(state(1))
    with pytest.raises(InputError, match="NamedTuple"):
        unflatten(tensors, structure)
    with pytest.raises(FileError, match="fields"):
        unflatten(tensors, structure, Adaptation(0.0, 1, torch.zeros(1)))
    with pytest.raises(FileError):
        unflatten({}, structure, state(1))
    bad: list[Any] = [
        None, {}, "x", [], [1, 2], [[]], [["list"]], [["list", 3]], [["list", "3"]], [["float", "x"]], [["float", 2]],
        [["float", "0x1p99999"]], [["what", 1]], [["dict", [[]]], 1], [["dict", 3]], [["bytes", "t", "float32", [7]]],
        [["bytes", "t", "object", [1]]], [["tensor", "none"]], [["tensor", []]], [["list", 1]] * 500, [2.5],
        [["named", 3]], [["list", 10**12]],
    ]  # fmt: skip
    for nodes in bad:
        with pytest.raises(FileError):
            unflatten({"t": torch.zeros(4, dtype=torch.uint8)}, nodes, state(1) if nodes == [["named", 3]] else None)


# Locks


def test_the_second_is_told_about_the_first(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(FileError) as caught, locked(tmp_path):
            raise AssertionError("two holders")
        assert f"process {os.getpid()} on {os.uname().nodename} since 20" in caught.value.got
        assert caught.value.remedy
    with locked(tmp_path), locked(tmp_path.parent):  # free again, and another folder is another matter
        pass
    for folder in (tmp_path / "missing", tmp_path / "lock"):
        with pytest.raises(FileError), locked(folder):
            raise AssertionError("no folder")


def test_the_lock_is_dropped_on_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), locked(tmp_path):
        raise KeyboardInterrupt
    with locked(tmp_path):
        assert (tmp_path / "lock").exists()


@pytest.mark.parametrize("text", [b"", b"nonsense", b"{}", b"[1]", b'{"pid": {"a": 1}}', bytes(5000)])
def test_a_lock_file_that_says_nothing(text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nescio.store.lock._PATIENCE", 0.02)
    (tmp_path / "lock").write_bytes(text)
    with locked(tmp_path):  # whatever was in it
        (tmp_path / "lock").write_bytes(text)
        with pytest.raises(FileError, match="another process"), locked(tmp_path):
            raise AssertionError("two holders")


HOLDER = """
import sys, time
from nescio.store import locked
with locked(sys.argv[1]):
    sys.stdout.write("held\\n")
    sys.stdout.flush()
    time.sleep(60)
"""


def test_a_kill_drops_the_lock(tmp_path: Path) -> None:
    with child(HOLDER, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(FileError, match=f"process {process.pid} on"), locked(tmp_path):
            raise AssertionError("two holders")
        process.send_signal(signal.SIGKILL)
        process.wait()
        with locked(tmp_path):
            assert str(os.getpid()) in (tmp_path / "lock").read_text()


# One child imports torch and forks a hundred that start at the same moment.
CROWD = """
import os, sys, time
from nescio.errors import FileError
from nescio.store import locked

gate, done = os.pipe(), os.pipe()
children = []
for number in range(100):
    pid = os.fork()
    if pid == 0:
        os.close(gate[1]); os.close(done[1])
        os.read(gate[0], 1)  # until the gate is closed on the other side
        try:
            with locked(sys.argv[1]):
                os.read(done[0], 1)  # until all others have failed
                os._exit(0)
        except FileError as error:
            open(os.path.join(sys.argv[1], f"told-{number}"), "w").write(error.got)
            os._exit(1)
    children.append(pid)
os.close(gate[1])
ended = []
while len(ended) < 99:
    ended.append(os.waitpid(-1, 0))
os.close(done[1])
ended.append(os.waitpid(-1, 0))
winner = [pid for pid, status in ended if status == 0]
assert winner == [ended[-1][0]], ended
sys.stdout.write(str(winner[0]))
"""


def test_of_a_hundred_simultaneous_starts_one_wins(tmp_path: Path) -> None:
    with child(CROWD, tmp_path) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    told = [path.read_text() for path in tmp_path.glob("told-*")]
    assert len(told) == 99
    assert all(f"process {output} on" in text for text in told)


# A whole run, killed at every write


DIM, TOTAL, EVERY = 3, 17, 5


def chain(folder: Path | str) -> str | None:
    """A toy sampler with adaptation that logs, saves every few steps, and goes on where it was; returns the note."""
    with locked(folder):
        with DrawLog.open(os.path.join(folder, "draws"), DIM, torch.float32, {}, {"size": torch.float64}, 200) as log:
            begun = state(0)
            found = newest(folder)
            first, now = 0, begun
            if found is not None:
                first, now = found.step, unflatten(found.tensors, found.header["structure"], begun)
                draws = found.header["draws"]
                assert isinstance(draws, int)
                log.truncate_to(draws)
            else:
                log.truncate_to(0)
            for step in range(first, TOTAL):
                noise = Noise(5).at("step", step).normal(2, DIM)
                theta = 0.9 * now.theta + now.adaptation.log_step * noise
                adaptation = Adaptation(now.adaptation.log_step * 0.99 + 0.01, step, now.adaptation.mass + 1)
                now = State(theta, adaptation, now.best)
                log.append(0, step, theta, {"size": theta.double().square().sum(1)})
                if (step + 1) % EVERY == 0:
                    log.flush()
                    tensors, structure = flatten(now)
                    save_checkpoint(folder, step + 1, tensors, {"structure": structure, "draws": log.draws})
        return None if found is None else found.note


RUNS = """
import os, signal, sys
from test_checkpoint import chain
from nescio.store import atomic, checkpoint, tail
os.fsync = lambda file: None  # a kill is no power cut: what was written stays
MODULES = {"atomic": atomic, "checkpoint": checkpoint, "tail": tail}

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
        setattr(MODULES[place], step, dying(MODULES[place], step, moment, int(number)))
        chain(folder)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, folder
"""


def test_a_run_killed_at_any_write_gives_the_same_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # slow, and a kill is no power cut
    (tmp_path / "calm").mkdir()
    chain(tmp_path / "calm")
    calm = (tmp_path / "calm" / "draws").read_bytes()
    assert len(read_log(tmp_path / "calm" / "draws").blocks[0].steps) == TOTAL
    atoms = ["_check_target", "_check_space", "_open", "_fsync", "_read_back", "_replace", "_fsync_folder"]
    places = [f"atomic.{step}.{m}" for step in atoms for m in ("before", "after")]
    places += [f"atomic._write.{m}" for m in ("before", "half", "after")]
    numbered = [f"{place}.{n}" for place in places for n in (1, 2, 4)]  # the log's head, then checkpoints
    numbered += [f"tail._add.{m}.{n}" for m in ("before", "half", "after") for n in (1, 2, 3, 6)]
    numbered += [f"tail._sync.{m}.{n}" for m in ("before", "after") for n in (1, 2, 4)]
    numbered += [f"checkpoint._remove.{m}.1" for m in ("before", "after")]
    folders = [tmp_path / name for name in numbered]
    for folder in folders:
        folder.mkdir()
    with child(RUNS, *folders) as process:
        assert process.wait() == 0
    for folder in folders:
        assert chain(folder) is None, folder.name
        assert (folder / "draws").read_bytes() == calm, folder.name
        assert {"checkpoint-10.safetensors", "checkpoint-15.safetensors"} <= set(names(folder)), folder.name


def test_a_run_with_a_damaged_checkpoint_goes_on_from_the_one_before(tmp_path: Path) -> None:
    chain(tmp_path)
    calm = (tmp_path / "draws").read_bytes()
    damage(tmp_path / "checkpoint-15.safetensors", "flip")
    note = chain(tmp_path)
    assert note is not None
    assert "checkpoint-15" in note
    assert (tmp_path / "draws").read_bytes() == calm


AGAIN = """
import os, random, signal, sys, time
from test_checkpoint import chain

begun = time.monotonic()
chain(sys.argv[1])
lasts = time.monotonic() - begun
choose = random.Random(2)
for folder in sys.argv[2:]:
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            chain(folder)
            os._exit(0)
        time.sleep(choose.random() * lasts / 2)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    chain(folder)
"""


def test_random_kills(tmp_path: Path) -> None:
    """Seasoning: runs that are killed at random moments, four times each."""
    folders = [tmp_path / name for name in ("calm", *"abcdef")]
    for folder in folders:
        folder.mkdir()
    with child(AGAIN, *folders) as process:
        assert process.wait() == 0
    calm, *killed = [(folder / "draws").read_bytes() for folder in folders]
    assert killed == [calm] * 6
    assert all((found := newest(folder)) and found.note is None for folder in folders)
