"""What to begin with on a table? Network and sampler chosen on five sets that are not bundled, so that the bundled ones can judge.

boston, kin8nm, naval, power and protein (data folder: NESCIO_DATA), the splits of the literature, at most 900 of their training rows, by
lot, for the bundled tables have as many. First the network, by the sampler as it was; then the sampler, by that network; then the
activation and the prior, stages that were added when the first two had met the bundled tables. The choice of the least mean rank in
held-out negative log likelihood wins; sets count alike, whatever their units.

    python benchmarks/defaults.py [--splits 2] [--sets boston ...] [--budget SECONDS] [--out FOLDER] [--quick]

Each finished fit is one line of defaults.scores.jsonl, and is skipped the next time.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from record import RESULTS, keep, load
from torch import nn

from nescio import fit
from nescio.comparison.suites import PRIOR, regression
from nescio.data import load_uci
from nescio.evaluation import coverage, nll
from nescio.infer import MAP, MCLMC, Method
from nescio.laws import HalfNormal, Law, Normal
from nescio.nets.mlp import NUMBERS, Hidden
from nescio.noise import Noise

SETS = ("boston", "kin8nm", "naval", "power", "protein")
ROWS = 900


def ensemble(warmup: int, thin: int, energy_variance: float) -> Method:
    return 8 * (
        MAP(hold_out=0.1, patience=50) >> MCLMC(energy_variance=energy_variance, warmup=warmup, draws=100, thin=thin)
    )


class Choice(NamedTuple):
    hidden: Hidden
    method: Method
    prior: Law = PRIOR


NETS = {"50": (50,), "16-16": (16, 16), "32-32": (32, 32), "50-50": (50, 50)}
SIXTEEN = Hidden((16, 16), nn.ReLU)
FINER = "16-16, longer, shorter steps"
TANH = f"{FINER}, Tanh"
CHOICES = {name: Choice(Hidden(widths, nn.ReLU), ensemble(3000, 20, 0.1)) for name, widths in NETS.items()} | {
    "16-16, longer": Choice(SIXTEEN, ensemble(5000, 40, 0.1)),
    FINER: Choice(SIXTEEN, ensemble(5000, 40, 0.03)),
    f"{FINER}, SiLU": Choice(Hidden((16, 16), nn.SiLU), ensemble(5000, 40, 0.03)),
    TANH: Choice(NUMBERS, ensemble(5000, 40, 0.03)),
    f"{TANH}, prior twice as wide": Choice(NUMBERS, ensemble(5000, 40, 0.03), Normal(0.0, 2.0)),
    f"{TANH}, prior of learned width": Choice(NUMBERS, ensemble(5000, 40, 0.03), Normal(0.0, HalfNormal(2.0))),
}
STAGES = {
    "network": list(NETS),
    "sampler": ["16-16", "16-16, longer", FINER],
    "activation": [FINER, f"{FINER}, SiLU", TANH],
    "prior": [TANH, f"{TANH}, prior twice as wide", f"{TANH}, prior of learned width"],
}


def score(name: str, split: int, choice: str, quick: bool) -> dict[str, Any]:
    x, y, *test = (t.float() for t in load_uci(name, split))
    order = Noise(split).at("rows", name).permutations(1, len(y))[0][:ROWS]
    chosen = CHOICES[choice]
    task = regression(name, split, x[order], y[order], (test[0], test[1]), hidden=chosen.hidden, prior=chosen.prior)
    began = time.perf_counter()
    posterior = fit(task.model, task.data, 1 * MAP(epochs=2) if quick else chosen.method, seed=split)
    seconds = round(time.perf_counter() - began, 2)
    predictive = posterior.predict(task.test[0], draws=None)
    scores = {"nll": nll(predictive, task.test[1]), "coverage": coverage(predictive, task.test[1])}
    return {**scores, "seconds": seconds, "load": load()}


def table(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean NLL of each choice on each set, and its mean rank among those of its stage over the sets that all have finished."""
    means: dict[tuple[str, str], dict[str, float]] = {}
    for line in lines:
        means.setdefault((line["set"], line["choice"]), {})
    for (name, choice), held in means.items():
        own = [line for line in lines if (line["set"], line["choice"]) == (name, choice)]
        held |= {key: float(np.mean([line[key] for line in own])) for key in ("nll", "coverage", "seconds")}
        held["n"] = len(own)
    rows = [
        {
            "row": f"{name}, {choice}",
            "metric": metric,
            "published": None,
            "mark": "own",
            "ours": held[metric],
            "n": held["n"],
        }
        for (name, choice), held in means.items()
        for metric in ("nll", "coverage", "seconds")
    ]
    for stage, choices in STAGES.items():
        whole = [name for name in SETS if all((name, choice) in means for choice in choices)]
        for choice in choices if whole else []:
            own = [1 + sum(means[name, o]["nll"] < means[name, choice]["nll"] for o in choices) for name in whole]
            extra = {"published": None, "mark": "own", "n": len(whole)}
            rows.append(
                {"row": f"{stage}, {choice}", "metric": "mean rank in nll", "ours": float(np.mean(own)), **extra}
            )
    return [{**row, "checklist": ["000-37"]} for row in rows]


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--budget", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    until = time.time() + given.budget
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"defaults{'.quick' if given.quick else ''}.scores.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for split in range(1 if given.quick else given.splits):
        for name in SETS[:1] if given.quick else given.sets:
            for choice in list(CHOICES)[:2] if given.quick else CHOICES:
                key = {"set": name, "split": split, "choice": choice}
                if time.time() >= until or any(key.items() <= line.items() for line in lines):
                    continue
                lines.append({**key, **score(name, split, choice, given.quick)})
                print(lines[-1], flush=True)
                with open(path, "a") as stream:
                    stream.write(json.dumps(lines[-1]) + "\n")
    rows = table(lines)
    for row in rows:
        print(f"{row['row']:24} {row['metric']:18} {row['ours']:8.3f}  n={row['n']}")
    command = "python benchmarks/defaults.py" + (" --quick" if given.quick else f" --splits {given.splits}")
    settings = {"rows": ROWS, "load": lines[-1]["load"] if lines else None}
    keep("defaults", command, rows, sorted({line["split"] for line in lines}), given.quick, given.out, {}, settings)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
