"""Time to a posterior: seconds per effective draw in function space, nescio's MAP >> MCLMC beside numpyro's NUTS.

Three UCI tables, standard split 0, inputs and target standardised by the training part; the net d-16-16-2 with ReLU gives a mean and a
scale (`Heteroscedastic`), prior N(0, 1) on all weights, 4 chains or `--members`. Effective draws are bulk ESS of the predictive mean at
(up to) 50 held-out points, by nescio.diagnose for both, over all chains together and summed over single chains. Seconds are those of a
fresh process until the draws are there: imports, compilation, warm start and warm-up included. NUTS starts where it likes (its default)
and, in a row of its own, where MAP ended, whose seconds are then added. benchmarks/README.md says what the columns mean.

    make peers
    python benchmarks/posterior_time.py [--quick] [--sets yacht energy] [--sides "numpyro NUTS"] [--rounds 1] [--members 12]
                                        [--peers PYTHON]

Rows take the places of those in the kept table, whose others stay (delete the file to begin anew); each says where it was made.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from launch import launch
from problem import check_density, heteroscedastic
from record import PEERS, RESULTS, join, load
from time_score import Table, load_table, medians, per_draw, score, show

NESCIO = {"warmup": 10_000, "draws": 1000, "thin": 20, "epochs": 100}
NUMPYRO = {"warmup": 500, "draws": 500, "thin": 1}
SIDES = {  # row: script, settings
    "nescio MAP >> MCLMC": ("time_nescio.py", {**NESCIO, "energy_variance": 5e-4}),
    "nescio MAP >> MCLMC, energy variance 0.1": ("time_nescio.py", {**NESCIO, "energy_variance": 0.1}),
    "numpyro NUTS": ("time_numpyro.py", NUMPYRO),
    "numpyro NUTS from MAP": ("time_numpyro.py", NUMPYRO),
}
SETS, CHAINS = ("concrete", "energy", "yacht"), 4
QUICK = {"warmup": 100, "draws": 20, "thin": 2, "epochs": 2}


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder

    def run(self, table: Table, script: str, settings: dict[str, Any], seed: int, start: str | None) -> dict[str, Any]:
        """One process, its density checked; what it says and the draws it wrote."""
        problem, out = self.folder / "problem.npz", self.folder / "draws.npz"
        table.problem.save(problem)
        common = {"epochs": 0, "energy_variance": 5e-4, "widths": table.widths, "chains": self.options.members}
        spec = {**common, **settings, "problem": str(problem), "out": str(out), "seed": seed, "start": start}
        spec["threads"] = self.options.threads
        python = sys.executable if script == "time_nescio.py" else str(self.options.peers)
        cache = Path(tempfile.mkdtemp(dir=self.folder))  # empty: compilation is part of the time
        got = launch(python, script, spec, cache, timeout=6 * 3600)
        arbiter = [heteroscedastic(w, table.problem, table.widths) for w in table.problem.probes]
        check_density(script, got["log_density"], arbiter)
        with np.load(out, allow_pickle=False) as file:
            return {**got, "theta": file["theta"]}

    def rows(self, name: str, seed: int) -> list[dict[str, Any]]:
        table, rows, chains = load_table(name), [], self.options.members
        suffix = "" if chains == CHAINS else f", {chains} chains"
        sides = {row: s for row, s in SIDES.items() if row in self.options.sides}
        for row, (script, settings) in sides.items():
            own = {**settings, **QUICK} if self.options.quick else settings
            start, before = None, 0.0
            if row.endswith("from MAP"):
                ends = self.run(table, "time_nescio.py", {**NESCIO, "draws": 0}, seed, None)
                start, before = str(self.folder / "start.npz"), ends["fit_s"]
                np.savez(start, theta=ends["theta"])
            got = self.run(table, script, own, seed, start)
            scores = score(table, got.pop("theta"))
            seconds = got.pop("seconds") + before
            each = per_draw(seconds, scores)
            facts = {name: value for name, value in got.items() if name not in ("log_density", "fit_s")}
            head = {"row": f"{name}, {row}{suffix}", "set": name, "side": row, "chains": chains, "seed": seed}
            rows.append(
                {**head, "data": table.problem.origin, "seconds": seconds, "map_s": before, **scores, **each, **facts}
            )
            print(show(rows[-1:], head=False), flush=True)
        return rows


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="nescio alone, one table, a few draws")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--sides", nargs="*", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--rounds", type=int, default=1, help="seeds")
    parser.add_argument("--members", type=int, default=CHAINS, help="chains")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", type=Path, default=PEERS, help="the python of the peers' environment")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets, options.rounds, options.members, options.threads = ["yacht"], 1, 2, 1
        options.sides = ["nescio MAP >> MCLMC"]
    elif not options.peers.exists():
        parser.error(f"no peers at {options.peers}: run `make peers`, or give --peers")
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        every = [row for seed in range(options.rounds) for name in options.sets for row in bench.rows(name, seed)]
    rows = medians(every)
    peers = {name: v for row in rows if "numpyro" in row["side"] for name, v in row["versions"].items()}
    settings: dict[str, Any] = {"nescio": QUICK} if options.quick else {"nescio": NESCIO, "numpyro": NUMPYRO}
    settings |= {"chains": options.members, "threads": options.threads}
    settings |= {"load_before": before, "load_after": load()}
    command = "python benchmarks/posterior_time.py" + (" --quick" if options.quick else "")
    path = join("posterior_time", command, rows, range(options.rounds), options.quick, options.out, peers, settings)
    print(f"{show(rows)}\nwritten to {path.name}")
    return rows


if __name__ == "__main__":
    main()
