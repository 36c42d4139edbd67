"""Work that is shared out over processes gives the answer of the same work in series.

Shards of the data, whose gradients add up to that of all rows, are in tests/test_compiled.py.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import pytest

from nescio import Model, fit
from nescio.infer import MAP
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise

ROOT = Path(__file__).resolve().parent.parent


def train(job: dict[str, Any], until: float) -> dict[str, Any]:
    """A member of an ensemble."""
    x = Noise(0).normal(40, 2)
    with Noise(job["seed"]).at("net").scope():
        model = Model(mlp(2, 8, 1), Normal(0.0, 1.0), Gaussian(0.1))
    member = fit(model, (x, x.sin().sum(1, keepdim=True)), MAP(epochs=5, batch_size=10), seed=job["seed"])
    return {"said": member.predict(x[:3]).mean[:, 0].tolist()}


@pytest.mark.nightly  # two processes that import torch take seconds
def test_members_in_processes_are_those_in_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, in the order of the jobs, whichever process was first: noise is keyed by the seed and by nothing else."""
    monkeypatch.syspath_prepend(str(ROOT / "reproduce"))
    resumable = importlib.import_module("resumable")
    jobs = [{"seed": seed} for seed in range(3)]
    told = []
    for workers in (1, 2):
        lines = resumable.finish(jobs, train, tmp_path / f"{workers}.jsonl", "cpu", workers, math.inf)
        assert [line["job"] for line in lines] == jobs
        told.append([line["said"] for line in lines])
    assert told[0] == told[1] and len({line[0] for line in told[0]}) == 3
