"""Exact posteriors from outside: every mean and standard deviation of 28 linear models and a logistic one, by each exact sampler.

Independent chains with ten draws each, far apart; the standard error of a mean is that of the means of chains, whatever draws of one
chain have in common. With n = 40 000 draws: |z| <= 6.11 for a mean (a false alarm once in 1e9 comparisons), 3% for a standard
deviation, and for the logistic model, whose truth is itself an estimate (its error enters
z), a mean within 0.02 sd: four standard errors, a false alarm once in 630 runs of its 25 means. With fewer draws the bounds in sd and
per cent widen as 1/√n, with more they stay. Chains start at least squares and adapt together in the warm-up; AdjustedMCLMC, whose own
adaptation is made for chains that are already spread, begins where 600 steps of HMC end, and so does NUTS on the two files that were
left, diamonds and earn_height. On earn_height chains start at a noise of 1, where 18885 is right, 2e11 nats up: the step that suits the
others is too long there, and one chain in a hundred never leaves, each of its trajectories divergent. So AdjustedMCLMC from 300 steps of
HMC and NUTS by itself were wrong, standard deviations 70% and 380% too large; both rows were dropped. (Rows say how they began. Those that
name `draws=1` are of 40 000 chains with one draw each.)
Steps are small, an acceptance of 0.99 for every file:
at the usual goals all four were off by 0.07 sd in the noise of the few-rows case, five rows for seven weights, because no step of the
usual size gets into the neck where the noise is small and the weights have as little room. Before any sampling
the log density at a stated point must be that of the reference to 1e-9. The linear references (mean, sd, to rounding)
were made by quadrature in 50 digits.

    python reproduce/truth.py --truth FOLDER [--chains 4000] [--device cuda] [--quick] [--only kilpisjarvi] [--methods HMC NUTS]
                              [--budget SECONDS] [--out FOLDER] [--rows FILE]

Rows "on a CPU" are of chains whose steps are code in C (docs/architecture.md), the others of a GPU's recorded kernels. Rows that are
done are appended to a file (truth.rows.jsonl in the --out folder), one JSON line each with its settings, and skipped by the next run for
as many draws; the table has all of them, judged anew. After --budget seconds no new row is started.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evidence import RESULTS, origin, write
from truth_files import FOLDERS, Problem, files, problem

from nescio import fit
from nescio.infer import HMC, MALA, MAP, NUTS, AdjustedMCLMC, Method

GOAL = 0.99  # of the acceptance, for all: with the usual steps no sampler gets into the neck of the few-rows posterior
CHAINS, DRAWS = 4000, 10
SPREAD = HMC(draws=1, warmup=600, leapfrog=32, acceptance=GOAL, dense=True)
METHODS: dict[str, Method] = {
    "HMC": HMC(draws=DRAWS, warmup=600, thin=4, leapfrog=32, acceptance=GOAL, dense=True),
    "NUTS": SPREAD >> NUTS(draws=DRAWS, warmup=300, thin=4, acceptance=GOAL, dense=True),
    "MALA": MALA(draws=DRAWS, warmup=8000, thin=400, acceptance=GOAL, dense=True),
    "AdjustedMCLMC": SPREAD
    >> AdjustedMCLMC(draws=DRAWS, warmup=600, thin=4, acceptance=GOAL, dense=True, most_steps=48),
}
Z, SD, SHIFT = 6.11, 0.03, 0.02
SAME = 1e-9  # of the log density, relative


def verdict(values: np.ndarray, known: Problem) -> dict[str, Any]:
    """Draws (chains, draws, parameters) against the reference: the worst of each kind, and whether all are within bounds."""
    chains, draws, _ = values.shape
    means = values.mean(1)  # (chains, parameters)
    shift = (means.mean(0) - known.mean) / known.sd
    z = shift * known.sd / np.hypot(means.std(0, ddof=1) / math.sqrt(chains), known.error)
    ratio = values.reshape(chains * draws, -1).std(0, ddof=1) / known.sd
    worst = {"ours": np.abs(z).max(), "sd_error": np.abs(ratio - 1).max(), "shift": np.abs(shift).max()}
    return judged({name: float(value) for name, value in worst.items()}, chains * draws, bool(known.error.any()))


def judged(found: dict[str, Any], n: int, estimated: bool) -> dict[str, Any]:
    """With its bounds, and whether all are kept. `estimated`: the truth is an estimate itself."""
    wider = max(1.0, math.sqrt(CHAINS * DRAWS / n))
    bounds = {"ours": Z, "sd_error": wider * SD, **({"shift": wider * SHIFT} if estimated else {})}
    right = all(bool(found[name] <= bound) for name, bound in bounds.items())  # NaN is not within any bound
    return {**found, "bounds": bounds, "right": right}


def score(path: Path, name: str, chains: int, device: str) -> dict[str, Any]:
    known = problem(path)
    error = known.density_error()
    if error is not None and not error <= SAME:
        raise SystemExit(f"{known.name}: the log density is off by {error:.1e}; it is another model")
    method, rows = METHODS[name], len(known.data[0])
    here = MAP(epochs=1, lr=1e-30, batch_size=rows, optimizer=torch.optim.SGD)  # stays at the network's own weights
    began = time.perf_counter()
    posterior = fit(known.model, known.data, here >> chains * method, seed=0, device=device)
    values = known.vector(posterior.sample(chains * DRAWS))
    judged = verdict(values.reshape(chains, DRAWS, -1), known)
    blocks = posterior.info.get("blocks", [posterior.info])
    return {
        "row": labelled(known.name, name, device),
        "metric": "largest |z| of a mean",
        "published": None,
        "mark": "read",
        **judged,
        "density_error": error,
        "n": chains * DRAWS,
        "parameters": len(known.mean),
        "seconds": round(time.perf_counter() - began, 1),
        "acceptance": float(np.mean([block["acceptance"] for block in blocks])),
        "settings": repr(method),
        "compiled": blocks[0].get("compiled"),
        "checklist": ["002-19", "002-20", "002-22"],
        "made": made(device),
    }


def labelled(problem: str, method: str, device: str) -> str:
    return f"{problem}, {method}" + ("" if device.startswith("cuda") else ", on a CPU")


def made(device: str) -> dict[str, Any]:
    here = origin()
    return {**here, "machine": torch.cuda.get_device_name(device)} if device.startswith("cuda") else here


def finished(rows: Path) -> list[dict[str, Any]]:
    """What earlier runs left, judged anew; a line that a kill cut short is not counted."""
    kept = []
    for line in rows.read_text().splitlines() if rows.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        kept.append(judged(row, row["n"], "shift" in row["bounds"]))
    return kept


def append(rows: Path, row: dict[str, Any]) -> None:
    rows.parent.mkdir(parents=True, exist_ok=True)
    cut = rows.exists() and not rows.read_bytes().endswith(b"\n") and rows.stat().st_size > 0
    with rows.open("a") as file:
        file.write(("\n" if cut else "") + json.dumps(row) + "\n")


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--chains", type=int, default=CHAINS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="files whose name contains this")
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which no new row is started")
    parser.add_argument("--quick", action="store_true", help="one small posterior, few chains")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--rows", type=Path, help="finished rows, read and appended to")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    if options.quick:
        options.only, options.chains = "mesquite-logmesquite_logvolume", 100
    kept_in = options.rows or options.out / f"truth{'.quick' if options.quick else ''}.rows.jsonl"
    known = {(row["row"], row["n"]): row for row in finished(kept_in)}
    wanted = [path for path in files(options.truth) if options.only in path.stem]
    if not wanted:
        parser.error(f"no file with {options.only!r} in its name in {', '.join(FOLDERS)} of {options.truth}")
    rows, left = [], 0
    for path, name in ((path, name) for path in wanted for name in options.methods):
        row = known.get((labelled(path.stem, name, options.device), options.chains * DRAWS))
        if row is None and time.perf_counter() - began > options.budget:
            left += 1
            continue
        if row is None:
            row = score(path, name, options.chains, options.device)
            append(kept_in, row)
            print({k: row[k] for k in ("row", "ours", "sd_error", "seconds", "acceptance", "right")}, flush=True)
        rows.append(row)
    every = {
        **{name: row for (name, n), row in known.items() if n == options.chains * DRAWS},
        **{row["row"]: row for row in rows},
    }
    if every:
        made = list(every.values())[-1]["made"]
        command = "python reproduce/truth.py --truth FOLDER"
        write("truth", command, list(every.values()), [0], options.quick, options.out, made)
    wrong = [row["row"] for row in rows if not row["right"]]
    print(
        f"{len(rows) - len(wrong)} of {len(rows)} right, {left} left for another run; wrong: {', '.join(wrong) or 'none'}"
    )
    return rows


if __name__ == "__main__":
    main()
