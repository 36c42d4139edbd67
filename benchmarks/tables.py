"""The bundled tables against what others would use on a table: scikit-learn's gradient boosting and Gaussian process, NGBoost, bde.

Held-out negative log likelihood, coverage of 90% intervals and RMSE over fixed splits (nine tenths to learn from), with seconds. nescio is
what `nescio fit TABLE` does without further options; every peer is used as its own documentation shows, nothing was tuned for any of them:
  nescio        mlp(inputs, 16, 16, outputs, activation=Tanh), Normal(0, 1), Heteroscedastic() (wine: rounded=1), infer.default(...), chosen
                on other tables (defaults.py)
  boosting      GradientBoostingRegressor() for the mean, and a Gaussian whose width is that of the errors on a held-out tenth
  Gaussian process   constant x RBF with a length for each input + white noise, standardised, likelihood maximised from two starts
  NGBoost       NGBRegressor(), a Gaussian by natural gradients; stops on a held-out tenth (early_stopping_rounds=50)
  bde           BdeRegressor as in its documentation: 8 members, 16 x 16, 1000 epochs, 5000 warm-up steps, 2000 draws; standardised

    python benchmarks/tables.py [--splits 5] [--tables yacht ...] [--only nescio ...] [--peers PYTHON] [--budget SECONDS] [--out FOLDER]
                                [--quick]

Test rows that repeat a training row are not scored. A target in steps (wine's marks) has no density, and who is sure of a whole number
would win without end: there everybody's NLL is that of the step around y, a probability. `rounded` and this score were made after first
looks, when one of our own splits of wine had come to thousands of nats a row, and bde to densities above any probability. Each finished
fit is one line of tables.scores.jsonl, and is skipped the next time.
Peers run in an environment of their own (`make peers-tables`, benchmarks/peers_tables.txt).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import HERE, RESULTS, keep, load
from torch.distributions import Normal

from nescio import fit
from nescio.comparison.suites import regression
from nescio.data import Table, steps, uci
from nescio.data.bundled import TARGETS
from nescio.evaluation import coverage, nll, rmse
from nescio.infer import MAP, default
from nescio.nets.mlp import NUMBERS
from nescio.predictive import Drawn

PEERS = ("boosting", "gaussian_process", "ngboost", "bde")
PYTHON = HERE.parent / ".peers-tables" / "bin" / "python"


def ours(name: str, split: int, quick: bool) -> dict[str, Any]:
    train, test = uci(name).split(seed=split, test=0.1)
    task = regression(name, split, train.x, train.y, (test.x, test.y), hidden=NUMBERS, rounded=steps(train.y))
    method = 1 * MAP(epochs=2) if quick else default(task.model, task.data)
    began = time.perf_counter()
    posterior = fit(task.model, task.data, method, seed=split)
    seconds = time.perf_counter() - began
    new = strangers(train, test)
    return scored(posterior.predict(test.x[new], draws=None), test.y[new], steps(train.y), seconds)


def theirs(python: str, library: str, name: str, split: int, quick: bool) -> dict[str, Any]:
    """Components of a Gaussian mixture come back, and are scored here like ours."""
    train, test = uci(name).split(seed=split, test=0.1)
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder) / "given.npz", Path(folder) / "answer.npz"
        np.savez(given, x=train.x.numpy(), y=train.y[:, 0].numpy(), x_test=test.x.numpy())
        spec = json.dumps(
            {"library": library, "seed": split, "quick": quick, "given": str(given), "answer": str(answer)}
        )
        done = subprocess.run([python, str(HERE / "tables_peer.py"), spec], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{library} on {name} {split}\n{done.stderr[-2000:]}")
        found = np.load(answer)
        new = strangers(train, test)
        loc, scale = (torch.from_numpy(found[key]).double()[:, new, None] for key in ("loc", "scale"))
        return scored(Drawn(Normal(loc, scale)), test.y[new].double(), steps(train.y), float(found["seconds"]))


def strangers(train: Table, test: Table) -> torch.Tensor:
    """Test rows without a twin among the training rows: in wine more than a quarter have one, and who memorises would win by them."""
    seen = {tuple(row) for row in torch.cat([train.x, train.y], 1).tolist()}
    return torch.tensor([tuple(row) not in seen for row in torch.cat([test.x, test.y], 1).tolist()])


def scored(predictive: Any, y: torch.Tensor, step: float, seconds: float) -> dict[str, Any]:
    return {
        "nll": nll_of_step(predictive, y, step) if step else nll(predictive, y),
        "coverage": coverage(predictive, y),
        "rmse": rmse(predictive, y),
        "rows": len(y),
        "seconds": round(seconds, 2),
        "load": load(),
    }


def nll_of_step(predictive: Any, y: torch.Tensor, step: float) -> float:
    """Of the values that would have been rounded to y; a chance of nothing counts as 1e-12, for everybody."""
    chance = predictive.cdf(y + step / 2) - predictive.cdf(y - step / 2)
    return float(-chance.double().clamp_min(1e-12).log().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--tables", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--only", nargs="*", default=["nescio", *PEERS], choices=["nescio", *PEERS])
    parser.add_argument("--peers", default=str(PYTHON))
    parser.add_argument("--budget", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    until = time.time() + given.budget
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"tables{'.quick' if given.quick else ''}.scores.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    libraries = ["nescio"] if given.quick else given.only
    for split in range(1 if given.quick else given.splits):
        for name in given.tables[:1] if given.quick else given.tables:
            for library in libraries:
                key = {"library": library, "table": name, "split": split}
                if time.time() >= until or any(key.items() <= line.items() for line in lines):
                    continue
                score = (
                    ours(name, split, given.quick)
                    if library == "nescio"
                    else theirs(given.peers, library, name, split, given.quick)
                )
                lines.append({**key, **score})
                with open(path, "a") as stream:
                    stream.write(json.dumps(lines[-1]) + "\n")
    finish(lines, given)


def finish(lines: list[dict[str, Any]], given: argparse.Namespace) -> None:
    rows = table(lines)
    for row in rows:
        print(f"{row['row']:28} {row['metric']:9} {row['ours']:8.3f} ± {row['se'] or math.nan:.3f}  n={row['n']}")
    command = "python " + " ".join(["benchmarks/tables.py", *[a for a in sys.argv[1:] if not a.startswith("/")]])
    settings = {
        "splits": sorted({line["split"] for line in lines}),
        "load": [line["load"] for line in lines][-1] if lines else None,
    }
    keep(
        "tables",
        command,
        rows,
        sorted({line["split"] for line in lines}),
        given.quick,
        given.out,
        versions(given.peers),
        settings,
    )


def table(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over splits with standard errors, and for every peer the paired difference in NLL to ours."""
    rows = []
    for name in dict.fromkeys(line["table"] for line in lines):
        own = {line["split"]: line for line in lines if line["table"] == name and line["library"] == "nescio"}
        for library in dict.fromkeys(line["library"] for line in lines):
            mine = [line for line in lines if line["table"] == name and line["library"] == library]
            for metric in ("nll", "coverage", "rmse", "seconds") if mine else ():
                values = np.array([line[metric] for line in mine])
                se = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
                row = {
                    "row": f"{name}, {library}",
                    "metric": metric,
                    "mark": "own",
                    "ours": float(values.mean()),
                    "se": None if math.isnan(se) else se,
                }
                row |= {"published": None, "n": len(values), "checklist": ["000-37"]}
                pairs = [line["nll"] - own[line["split"]]["nll"] for line in mine if line["split"] in own]
                if metric == "nll" and library != "nescio" and len(pairs) > 1:
                    row |= {"worse than nescio by": float(np.mean(pairs))}
                    row |= {"with standard error": float(np.std(pairs, ddof=1) / math.sqrt(len(pairs)))}
                rows.append(row)
    return rows


def versions(python: str) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json; names = ('scikit-learn', 'ngboost', 'sklearn-contrib-bde', 'jax', 'numpy');"
        "print(json.dumps({n: m.version(n) for n in names}))"
    )
    if not Path(python).exists():
        return {}
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {}


if __name__ == "__main__":
    main()
