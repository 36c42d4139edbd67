"""Planted faults of resuming: runs that go on, but not where they were. Each is caught by a check of tests/test_resume.py, or of
tests/test_compiled.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import test_compiled as in_code
import test_resume as proof
from fault import Fault

from nescio.infer import resume
from nescio.infer.map import MAP
from nescio.infer.sampler import Sampler
from nescio.noise import Noise
from nescio.posterior import Posterior


def restarted(word: str, module: Any = proof) -> Callable[[pytest.MonkeyPatch], None]:
    """Steps or epochs are counted from where a call of fit began, so that a resumed one uses its first noise again."""

    def plant(m: pytest.MonkeyPatch) -> None:
        first: dict[Any, int] = {}  # by the key of the block
        true_run, true_at = module.run, Noise.at

        def run(name: str, folder: str | Path | None = None) -> Posterior:
            first.clear()
            return true_run(name, folder)

        def at(self: Noise, *key: Any) -> Noise:
            if key[:1] == (word,):
                key = (word, key[1] - first.setdefault(self.key, key[1]))
            return true_at(self, *key)

        m.setattr(module, "run", run)
        m.setattr(Noise, "at", at)

    return plant


def forgotten(field: str) -> Callable[[pytest.MonkeyPatch], None]:
    """One field of a sampler's State is that of a first one."""

    def thaw(self: Sampler, tree: Any, state: Any) -> Any:
        return tree._replace(**{field: getattr(state, field)})

    return lambda m: m.setattr(Sampler, "thaw", thaw)


def optimiser_forgotten(m: pytest.MonkeyPatch) -> None:
    def thaw(self: MAP, tree: Any, state: Any) -> Any:
        state.u.data.copy_(tree.u)
        return tree._replace(u=state.u, optimizer=state.optimizer)

    m.setattr(MAP, "thaw", thaw)


def statistics_forgotten(m: pytest.MonkeyPatch) -> None:
    true = MAP.thaw
    m.setattr(MAP, "thaw", lambda self, tree, state: true(self, tree._replace(statistics=state.statistics), state))


def infos_forgotten(m: pytest.MonkeyPatch) -> None:
    m.setattr(resume, "expanded", lambda columns, device: [])


def step_done_twice(m: pytest.MonkeyPatch) -> None:
    """A checkpoint is taken for that of the step before."""
    true = resume.Stored.__init__

    def init(self: resume.Stored, *arguments: Any) -> None:
        true(self, *arguments)
        self.step -= self.step > 1

    m.setattr(resume.Stored, "__init__", init)


def record_of_another_block(m: pytest.MonkeyPatch) -> None:
    """All blocks of chains share one folder: the second finds the first's checkpoint."""
    m.setattr(resume, "name_of", lambda noise: "block-0")


def resumes(name: str, every: int = 4) -> Callable[[], None]:
    return lambda: proof.check_resumes(name, every)


FAULTS = [
    Fault("resume: noise is used again", restarted("step"), resumes("sghmc")),
    Fault("resume: the noise of dropout is used again", restarted("step"), resumes("map")),
    Fault("resume: a shuffle is replayed", restarted("epoch"), resumes("sghmc")),
    Fault("resume: the step size is adapted anew", forgotten("step_size"), resumes("hmc")),
    Fault("resume: the metric is forgotten", forgotten("metric"), resumes("dense")),
    Fault(
        "resume: the moments of a window are forgotten", forgotten("moments"), resumes("dense", 3)
    ),  # inside a window
    Fault("resume: the momentum is forgotten", forgotten("v"), resumes("sghmc")),
    Fault("resume: the optimiser is forgotten", optimiser_forgotten, resumes("map")),
    Fault("resume: norm statistics are forgotten", statistics_forgotten, resumes("map")),
    Fault("resume: the infos before are forgotten", infos_forgotten, resumes("map")),
    Fault("resume: a step is done twice", step_done_twice, resumes("map")),
    Fault(
        "resume: checkpoints are not looked for",
        lambda m: m.setattr(resume, "newest", lambda at: None),
        resumes("mala"),
    ),
    Fault("resume: a block takes another's record", record_of_another_block, resumes("blocks", 1)),
    Fault("resume: the squared gradients are forgotten", forgotten("squares"), resumes("sgld")),
    Fault("resume: the direction is forgotten", forgotten("direction"), resumes("mclmc")),
    Fault(
        "resume, compiled: noise is used again",
        restarted("step", in_code),
        lambda: in_code.check_goes_on("HMC", "draws"),
    ),
    Fault(
        "resume, compiled: the direction is forgotten",
        forgotten("direction"),
        lambda: in_code.check_goes_on("MCLMC", "draws"),
    ),
]
