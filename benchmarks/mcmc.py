"""Samplers beside their peers on the CPU: microseconds per gradient and chain, set-up, and a user's first short run.

The net 13-50-1 with tanh, 455 rows (the training part of boston, split 0, if it is here; else random rows of that shape), prior
N(0, 1), Gaussian noise 0.5, float32. Every measurement is a fresh process, all held to the same cores; libraries take turns within a
round, and ratios are those of one round. benchmarks/README.md says what the columns mean.

    make peers
    python benchmarks/mcmc.py [--quick] [--steady | --starts] [--processor --threads 1] [--rounds 3] \
        [--chains 1 4 16 64] [--libraries nescio numpyro] [--samplers NUTS] [--peers PYTHON] [--scores FILE]

Measurements that are done are kept in the scores file (one JSON line each), so an interrupted run goes on where it stopped.
`--samplers`: those that have changed, measured anew beside their peers. `--steady`: slopes alone; `--starts`: set-up and short runs
alone. Rows of a part of the table take the places of those in the kept one, and each says where it was made.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import FIXED, NOISE, SAMPLERS, SCRIPTS, SHORT, WIDTHS, Case, cases, data, lengths
from launch import launch
from problem import check_density, homoscedastic
from record import PEERS, RESULTS, join, load
from summary import costs, ratios, show, starts

EVERY = sorted({name for own in SAMPLERS.values() for name in own})


class Bench:
    """Measures what has not been measured yet. `arbiter`: the log densities that every library must have."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        problem = data(max(options.chains))
        self.origin, self.path = problem.origin, folder / "problem.npz"
        problem.save(self.path)
        self.arbiter = [homoscedastic(w, problem, WIDTHS, NOISE) for w in problem.probes]
        kept = options.scores.read_text().splitlines() if options.scores and options.scores.exists() else []
        self.measured: list[dict[str, Any]] = [json.loads(line) for line in kept]

    def measure(self, case: Case, job: str, turn: int, draws: tuple[int, int], cache: Path) -> None:
        head = {"round": turn, "job": job, **dict(zip(("library", "sampler", "chains"), case, strict=True))}
        if any(head.items() <= m.items() for m in self.measured):
            return
        python = sys.executable if case[0] == "nescio" else str(self.options.peers)
        spec = {**head, **FIXED, "draws": draws, "seed": turn, "problem": str(self.path)}
        spec |= {
            "threads": self.options.threads,
            "compile": not self.options.quick,
            "processor": self.options.processor,
        }
        got = launch(python, SCRIPTS[case[0]], {name: x for name, x in spec.items() if name != "round"}, cache)
        if job == "steady":
            check_density(" ".join(map(str, case)), got["log_density"], self.arbiter)
        done = {**head, "draws": draws, **got}
        self.measured.append(done)
        if self.options.scores:
            with self.options.scores.open("a") as file:
                file.write(json.dumps(done) + "\n")
        print(f"round {turn}: {' '.join(map(str, case))}, {job}: {got['total']:.1f} s to the first draws", flush=True)

    def round(self, turn: int) -> None:
        """Every case once; every other round in reverse, so that what drifts meets all libraries alike."""
        every = [
            case for case in cases(self.options.libraries, self.options.chains) if case[1] in self.options.samplers
        ]
        for case in every[::-1] if turn % 2 else every:
            draws = lengths(case, self.options.seconds)
            fresh = "-".join(map(str, (turn, *case)))  # empty: the compiler has seen nothing
            cache = self.folder / ("shared" if self.options.steady else fresh)
            if not self.options.steady and not self.options.quick:
                self.start(case, turn, draws, cache)
            if not self.options.starts:
                self.measure(case, "steady", turn, draws, cache)

    def start(self, case: Case, turn: int, draws: tuple[int, int], cache: Path) -> None:
        self.measure(case, "cold", turn, draws, cache)
        if case[0] == "nescio":
            self.measure(case, "cached", turn, draws, cache)  # once more, compiled code being on the disk
        if case[0] != "pyro" or case[2] <= 4:  # chain after chain: minutes that tell nothing new
            self.measure(case, "short", turn, (SHORT, SHORT), self.folder / f"{cache.name}-short")


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="nescio alone, two chains, very short runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chains", type=int, nargs="*", default=[1, 4, 16, 64])
    parser.add_argument("--libraries", nargs="*", choices=list(SAMPLERS), default=list(SAMPLERS))
    parser.add_argument("--samplers", nargs="*", choices=list(EVERY), default=list(EVERY))
    parser.add_argument("--seconds", type=float, default=5.0, help="about how long a timed run is")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--processor", action="store_true", help="processor time, on a machine that is not idle; one thread"
    )
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--steady", action="store_true", help="slopes alone: no set-up from nothing, no short runs")
    part.add_argument("--starts", action="store_true", help="set-up and short runs alone: no slopes")
    parser.add_argument("--peers", type=Path, default=PEERS, help="the python of the peers' environment")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--scores", type=Path, help="finished measurements, read and appended to")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.chains, options.libraries, options.seconds = 1, [2], ["nescio"], 0.02
        options.threads = 1
    if set(options.libraries) - {"nescio"} and not options.peers.exists():
        parser.error(f"no peers at {options.peers}: run `make peers`, or give --peers, or --libraries nescio")
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        for turn in range(options.rounds):
            bench.round(turn)
    rows = [*costs(bench.measured), *starts(bench.measured), *ratios(bench.measured)]
    rounds = {m["round"] for m in bench.measured}
    peers = {name: v for m in bench.measured if m["library"] != "nescio" for name, v in m["versions"].items()}
    settings = {**FIXED, "widths": WIDTHS, "rows": bench.origin, "seconds": options.seconds, "threads": options.threads}
    settings |= {
        "processor_time": options.processor,
        "steady": options.steady,
        "starts": options.starts,
        "chains": options.chains,
        "libraries": options.libraries,
        "samplers": options.samplers,
        "rounds": len(rounds),
    }
    settings |= {"load_before": before, "load_after": load()}
    command = "python benchmarks/mcmc.py" + (" --quick" if options.quick else "")
    path = join("mcmc", command, rows, sorted(rounds), options.quick, options.out, peers, settings)
    print(f"data: {bench.origin}\n{show(rows)}\nwritten to {path.name}")
    return rows


if __name__ == "__main__":
    main()
