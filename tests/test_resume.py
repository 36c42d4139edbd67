"""Kill and resume: a run that is killed anywhere and called again gives, bit for bit, the posterior of one that was left alone.

Every comparison is with a run without a folder. Kills are real (SIGKILL), in forked children of a child process.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from test_checkpoint import HOLDER, damage
from test_store import child
from torch import nn

from nescio import FileError, Model, fit
from nescio.infer import (
    HMC,
    MALA,
    MAP,
    MCLMC,
    NUTS,
    SGHMC,
    SGLD,
    ULA,
    AdjustedMCLMC,
    Cycles,
    Metropolis,
    RMSprop,
    driver,
    resume,
)
from nescio.infer.folder import NAME, signature
from nescio.infer.method import Method
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.noise import Noise
from nescio.posterior import Draws, Posterior
from nescio.store import atomic, checkpoint, read, tail

ROWS = 30
JOBS: dict[str, Method] = {
    "map": MAP(epochs=3, batch_size=15),
    "hmc": HMC(draws=2, warmup=4, leapfrog=2),
    "sghmc": SGHMC(draws=3, warmup=2, thin=2, batch_size=10, step_size=1e-4),
    "metropolis": Metropolis(draws=3, warmup=4),
    "ensemble": 2 * (MAP(epochs=1, batch_size=15) >> HMC(draws=2, warmup=2, leapfrog=2)),
}
SHORT: dict[str, Method] = {  # killed at every write, too, but not at random moments
    "nuts, short": NUTS(draws=2, warmup=2, max_depth=2),
    "mclmc, short": MCLMC(draws=2, warmup=2),
    "mala, short": MALA(draws=2, warmup=2),
    "sgld, short": SGLD(draws=2, warmup=2, batch_size=10, step_size=1e-4, precondition=RMSprop()),
    "ula, short": ULA(draws=2, warmup=2, step_size=1e-3),
    "adjusted, short": AdjustedMCLMC(draws=2, warmup=6, most_steps=2),
    "cyclical, short": SGHMC(draws=2, warmup=1, batch_size=10, step_size=Cycles(1e-4, n=2, explore=0.5)),
    "blocks": 4 * HMC(draws=1, warmup=1, leapfrog=2),  # two of two chains
}
CODE: dict[str, Method] = {  # as machine code, some steps a call; killed at random moments
    "hmc, code": 2 * HMC(draws=300, warmup=60, leapfrog=3),
    "nuts, code": 2 * NUTS(draws=150, warmup=60, max_depth=3),
    "mclmc, code": 2 * MCLMC(draws=600, warmup=60),
    "adjusted, code": 2 * AdjustedMCLMC(draws=150, warmup=60, most_steps=4),
}
MORE: dict[str, Method] = {  # interrupted, but not killed at every write
    "held out": MAP(epochs=9, batch_size=12, lr=0.5, hold_out=0.2, patience=1),
    "lbfgs": 2 * MAP(epochs=4, batch_size=ROWS, optimizer=torch.optim.LBFGS, lr=0.1),
    "dense": 3 * HMC(draws=3, warmup=9, leapfrog=3, dense=True),
    "sgld": 2 * SGLD(draws=3, warmup=3, batch_size=10, step_size=1e-4, precondition=RMSprop()),
    "mala": MALA(draws=3, warmup=5),
    "thinned": 2 * HMC(draws=3, warmup=3, leapfrog=2, thin=3),
    "nuts": 2 * NUTS(draws=2, warmup=4, max_depth=3, thin=2),
    "mclmc": 2 * MCLMC(draws=4, warmup=4),
}


def problem(norm: bool = False) -> tuple[Model, tuple[torch.Tensor, torch.Tensor]]:
    """A small regression; with `norm` the net has statistics and noise of its own."""
    noise = Noise(3)
    x = noise.at("x").normal(ROWS, 2)
    y = x[:, :1].sin() + 0.1 * noise.at("y").normal(ROWS, 1)
    inside = [nn.BatchNorm1d(4), nn.Dropout(0.3)] if norm else []
    with noise.at("net").scope():
        net = nn.Sequential(nn.Linear(2, 4), *inside, nn.Tanh(), nn.Linear(4, 1))
    return Model(net, Normal(0.0, 1.0), Gaussian(0.2)), (x, y)


def run(name: str, folder: str | Path | None = None) -> Posterior:
    method, room = {**JOBS, **SHORT, **MORE, **CODE}[name], driver.room
    with pytest.MonkeyPatch.context() as patch:
        if name == "blocks":  # as if there were memory for two chains at a time
            patch.setattr(driver, "room", lambda target, batch: (2, room(target, batch)[1]))
        compile = True if name in CODE else None
        return fit(*problem(norm=name == "map"), method, seed=5, folder=folder, compile=compile)


def assert_same(got: Posterior, want: Posterior) -> None:
    left, right = got.tensors(), want.tensors()
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), f"{name} differs"
    assert {**got.info, "seconds": 0} == {**want.info, "seconds": 0}


class Stop(Exception):
    """Stands for a kill, where the process has to go on."""


def interrupted(name: str, folder: str | Path, saves: int) -> bool:
    """Run until that many checkpoints were saved, then stop; False if the run was over before."""
    true_save, done = resume.Stored.save, [0]

    def save(self: resume.Stored, step: int, tree: Any) -> None:
        true_save(self, step, tree)
        done[0] += 1
        if done[0] == saves:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(resume.Stored, "save", save)
        patch.setattr(os, "fsync", lambda file: None)  # slow, and this is no power cut
        try:
            run(name, folder)
        except Stop:
            return True
    return False


def resumed(run: Callable[[Any], Posterior], folder: str | Path) -> tuple[Posterior, list[int]]:
    """The posterior, and at which step each block went on."""
    true_init, steps = resume.Stored.__init__, []

    def init(self: resume.Stored, *arguments: Any) -> None:
        true_init(self, *arguments)
        steps.append(self.step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume.Stored, "__init__", init)
        return run(folder), steps


def check_resumes(name: str, every: int = 1) -> None:
    """Stopped after each checkpoint, or every few of them, and resumed. Without a folder the want is plain."""
    want, saves = run(name), every
    while True:
        with tempfile.TemporaryDirectory() as folder:
            if not interrupted(name, folder, saves):
                assert saves > every
                return
            got, steps = resumed(partial(run, name), folder)
        assert any(steps), "it began anew"
        assert_same(got, want)
        saves += every


@pytest.mark.parametrize("name", [*JOBS, *MORE, "blocks"])
def test_a_run_that_was_stopped_goes_on(name: str) -> None:
    check_resumes(name, 2)


@pytest.mark.parametrize("name", ["thinned", "nuts", "mclmc"])
def test_the_trace_goes_on_too(name: str, tmp_path: Path) -> None:
    """Stopped inside a thinned stretch, whose divergences lie on both sides of the stop."""
    assert interrupted(name, tmp_path, 7)
    got, want = run(name, tmp_path), run(name)
    assert isinstance(got, Draws) and isinstance(want, Draws) and want.trace
    assert got.trace.keys() == want.trace.keys()
    for key, x in want.trace.items():
        assert x.shape == want.theta.shape[:2] and torch.equal(got.trace[key], x) and got.trace[key].dtype == x.dtype


def test_the_slow_clock_saves_at_the_first_draw_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    true_save = resume.save_checkpoint
    monkeypatch.setattr(
        resume, "save_checkpoint", lambda at, step, *more: (saved.append(step), true_save(at, step, *more))
    )
    assert_same(run("hmc", tmp_path), run("hmc"))
    assert saved == [5, 6]


# ---- kills ---------------------------------------------------------------------------------------------------------------

WRITES: list[tuple[Any, str, bool]] = [  # module, function, whether it can die half way
    (atomic, "_write", True),
    (atomic, "_replace", False),
    (tail, "_add", True),
    (tail, "_sync", False),
    (checkpoint, "_remove", False),
]


def dying(calls: list[int], number: int, half: bool, writes: bool, true: Callable[..., Any]) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == number and (writes or not half):
            if half:
                os.write(arguments[0], b"".join(arguments[1])[:60])
            os.kill(os.getpid(), signal.SIGKILL)
        return true(*arguments)

    return function


def in_child(work: Callable[[], object]) -> int:
    """Do it in a fork; 0 if it came to its end, else the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def kill_everywhere(name: str, top: str) -> None:
    """For a child process: die before every write of the run in turn, and half way through it; each time resume and compare."""
    os.fsync = lambda file: None  # type: ignore[assignment]  # a kill is no power cut: what was written stays
    resume.CHECKPOINT_SECONDS = 0.0
    want, number, killed, over = run(name), 0, 0, False
    while not over:
        number += 1
        for half in (False, True):
            folder = os.path.join(top, f"{number}-{half}")

            def work(folder: str = folder, number: int = number, half: bool = half) -> None:
                calls = [0]
                for module, function, writes in WRITES:
                    setattr(module, function, dying(calls, number, half, writes, getattr(module, function)))
                run(name, folder)

            if in_child(work) == signal.SIGKILL:
                killed += 1
                assert_same(run(name, folder), want)
            elif not half:
                over = True
            shutil.rmtree(folder)
    assert killed > 20, killed


def kill_at_random(name: str, top: str) -> None:
    """For a child process: four kills at random moments, each of a run that resumes the one before; then to the end."""
    resume.CHECKPOINT_SECONDS = 0.0
    began = time.monotonic()
    want = run(name, os.path.join(top, "calm"))
    lasts, choose = time.monotonic() - began, random.Random(name)
    for number in range(3):
        folder = os.path.join(top, str(number))
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                run(name, folder)
                os._exit(0)
            time.sleep(choose.random() * lasts / 2)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        assert_same(run(name, folder), want)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("kills", ["kill_everywhere", "kill_at_random"])
def test_killed(kills: str, name: str, tmp_path: Path) -> None:
    with child(f"from test_resume import {kills}; {kills}({name!r}, {str(tmp_path)!r})") as process:
        assert process.wait() == 0


@pytest.mark.parametrize(
    "kills", ["kill_everywhere(n, TOP) for n in proof.SHORT", "kill_at_random(n, TOP) for n in proof.CODE"]
)
def test_more_are_killed(kills: str, tmp_path: Path) -> None:
    """One child for all, which takes as long to begin as one of them to be killed."""
    script = f"import test_resume as proof; [(print(n), proof.{kills.replace(') for', ')) for')}]"
    with child(script.replace("TOP", f"{str(tmp_path)!r} + '/' + n.split(',')[0]")) as process:
        begun, _ = process.communicate()
        assert process.returncode == 0, f"the last of {begun.split()}"


def test_blocks_have_records_of_their_own(tmp_path: Path) -> None:
    assert interrupted("blocks", tmp_path, 3)  # the first is finished after two
    at = [checkpoint.newest(tmp_path / name) for name in ("block-0", "block-2")]
    assert [found.step for found in at if found is not None] == [2, 1]
    posterior = run("blocks", tmp_path)
    assert_same(posterior, run("blocks"))
    assert isinstance(posterior, Draws) and len(posterior.theta) == 4 and len(posterior.info["blocks"]) == 2
    assert posterior.theta.unique().numel() == posterior.theta.numel()  # each chain has its own noise


# ---- one folder, one run -------------------------------------------------------------------------------------------------


def test_what_is_finished_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want = run("ensemble", tmp_path)
    assert {"first.block-0", "second.block-0", "second.block-0.draws"} <= set(os.listdir(tmp_path))
    for kind in (MAP, HMC):
        monkeypatch.setattr(kind, "step", lambda *arguments: pytest.fail("a step again"))
    assert_same(run("ensemble", tmp_path), want)


def test_draws_are_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    true_states = resume.Stored.states
    monkeypatch.setattr(
        resume.Stored, "states", lambda self, last: (held.append(len(self.held)), true_states(self, last))[1]
    )
    posterior = run("metropolis", tmp_path)
    assert isinstance(posterior, Draws) and posterior.theta.shape[1] == 3
    assert held == [0]


def test_another_run_is_refused(tmp_path: Path) -> None:
    model, data = problem()
    method = JOBS["metropolis"]
    fit(model, data, method, seed=5, folder=tmp_path)
    other = Model(model.network.net, Normal(0.0, 2.0), Gaussian(0.2))
    moved = problem()[0]
    with torch.no_grad():
        next(moved.network.net.parameters()).add_(1)
    fewer = (data[0][1:], data[1][1:])
    tries: list[tuple[str, Any]] = [
        ("model", lambda: fit(other, data, method, seed=5, folder=tmp_path)),
        ("weights", lambda: fit(moved, data, method, seed=5, folder=tmp_path)),
        ("method", lambda: fit(model, data, JOBS["hmc"], seed=5, folder=tmp_path)),
        ("seed", lambda: fit(model, data, method, seed=6, folder=tmp_path)),
        ("temperature", lambda: fit(model, data, method, seed=5, temperature=2.0, folder=tmp_path)),
        ("rows", lambda: fit(model, fewer, method, seed=5, folder=tmp_path)),
        ("data", lambda: fit(model, (data[0], 1 + data[1]), method, seed=5, folder=tmp_path)),
    ]
    for what, wrong in tries:
        with pytest.raises(FileError) as caught:
            wrong()
        assert what in caught.value.got and caught.value.must and caught.value.remedy
    assert_same(fit(model, data, method, seed=5, folder=tmp_path), fit(model, data, method, seed=5))


def test_another_function_is_another_method(tmp_path: Path) -> None:
    """A repr of a function says where it lies; what it does, and what it closes over, tells two runs apart."""
    model, data = problem()

    def falling(h: float) -> SGLD:
        return SGLD(draws=2, warmup=0, step_size=lambda t: h * (1 - t))

    first = fit(model, data, falling(1e-4), folder=tmp_path)
    for other in (falling(2e-4), SGLD(draws=2, warmup=0, step_size=lambda t: 1e-4)):
        with pytest.raises(FileError, match="method"):
            fit(model, data, other, folder=tmp_path)
    assert_same(fit(model, data, falling(1e-4), folder=tmp_path), first)
    assert " at 0x" not in first.info["method"]


def test_a_function_in_a_partial_is_seen() -> None:
    def bound(h: float) -> SGLD:
        return SGLD(step_size=partial(lambda k, t: h * k, 2.0))

    assert signature(bound(1e-4)) == signature(bound(1e-4)) != signature(bound(2e-4))


def test_rows_that_are_drawn_anew_are_not_compared(tmp_path: Path) -> None:
    class Noisy(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return ROWS

        def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.randn(2), torch.zeros(1)

    for _ in range(2):
        fit(problem()[0], Noisy(), SGLD(draws=2, warmup=0, step_size=1e-5), folder=tmp_path)
    state, own = read(tmp_path / NAME)
    assert not state and own["data"] == "drawn anew"


def test_a_second_process_is_told_about_the_first(tmp_path: Path) -> None:
    with child(HOLDER, tmp_path) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(FileError, match=f"process {process.pid} on"):
            run("map", tmp_path)
        process.kill()
        process.wait()
    assert_same(run("map", tmp_path), run("map"))


def test_a_damaged_checkpoint_is_passed_over_and_told(tmp_path: Path) -> None:
    assert interrupted("hmc", tmp_path, 6)
    damage(tmp_path / "block-0" / "checkpoint-6.safetensors", "flip")
    got = run("hmc", tmp_path)
    assert "checkpoint-6" in got.info.pop("note")
    assert_same(got, run("hmc"))


def test_a_log_that_was_lost_is_told(tmp_path: Path) -> None:
    assert interrupted("hmc", tmp_path, 6)
    (tmp_path / "block-0.draws").unlink()
    with pytest.raises(FileError, match="draws"):
        run("hmc", tmp_path)


def test_batches_handed_over_again(tmp_path: Path) -> None:
    """An iterable is read once into memory; a resumed run reads the one that it is given."""
    model, (x, y) = problem()
    parts = list(zip(x.split(10), y.split(10), strict=True))
    want = fit(model, iter(parts), JOBS["sghmc"], folder=tmp_path)
    assert_same(fit(model, iter(parts), JOBS["sghmc"], folder=tmp_path), want)


def test_no_folder_where_there_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="folder"):
        run("map", tmp_path / "file")
