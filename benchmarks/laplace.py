"""Laplace approximations beside laplace-torch, on the CPU: curvature, linearised variances, memory.

784-100-100-10 and a small convolutional net, ten classes, 10,000 points, float32, one thread. fit: all that a library does from a trained
network to a posterior (curvature of all points, its decomposition); per input: the covariance of the ten outputs of the linearised
network, of 100 inputs in one call; memory: of both, fit and call. laplace-torch runs with both of its backends, curvlinops (which it takes
by itself) and BackPACK. Every measurement is a fresh process; libraries take turns within a round, every other round in reverse. Diagonal
curvature is the same matrix in all libraries, and the variances must agree; Kronecker factors differ in the biases, which nescio joins to
the weights.

    make peers-laplace
    python benchmarks/laplace.py [--quick] [--rounds 5] [--threads 1] [--peers PYTHON]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from launch import launch
from record import HERE, RESULTS, keep, load

PEERS = HERE.parent / ".peers-laplace" / "bin" / "python"
BACKENDS = ("nescio", "backpack", "curvlinops")
CASES = [(net, structure) for net in ("mlp", "conv") for structure in ("kfac", "diag")]
SLOW = ("mlp", "diag", "curvlinops")  # a loop over weights: fewer points, once
LEFT_OUT = ("conv", "diag", "curvlinops")  # likewise
FEW = 256
INPUTS = 100  # in one call


def specs(options: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for net, structure in CASES[1:2] if options.quick else CASES:
        for backend in BACKENDS[:1] if options.quick else BACKENDS:
            if (net, structure, backend) == LEFT_OUT:
                continue
            slow = (net, structure, backend) == SLOW
            points = 256 if options.quick else FEW if slow else 10_000
            shape = {"net": net, "structure": structure, "backend": backend, "points": points, "inputs": INPUTS}
            found.append({**shape, "job": "time", "repeats": 1 if slow else 3, "threads": options.threads})
    return found


def measured(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    todo = specs(options)
    got: list[list[dict[str, Any]]] = [[] for _ in todo]
    for turn in range(options.rounds):
        order = range(len(todo))
        for i in reversed(order) if turn % 2 else order:
            spec = todo[i]
            if spec["repeats"] == 1 and turn:
                continue
            ours = spec["backend"] == "nescio"
            python, script = (sys.executable, "laplace_ours.py") if ours else (str(options.peers), "laplace_peer.py")
            got[i].append(launch(python, script, spec, folder))
            fit, predict = (statistics.median(got[i][-1][key][1]) for key in ("fit", "predict"))
            name = f"{spec['net']}, {spec['structure']}, {spec['backend']}"
            print(
                f"round {turn}: {name}: fit {fit:.3f} s, {1000 * predict / spec['inputs']:.3f} ms / input", flush=True
            )
    return [row(spec, each) for spec, each in zip(todo, got, strict=True)]


def row(spec: dict[str, Any], each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians within a process; of these the median, least and most over rounds. By the processor's clock, and by the wall's."""
    found: dict[str, Any] = {"row": f"{spec['net']}, {spec['structure']}, {spec['backend']}", "n": len(each)}
    found |= {key: spec[key] for key in ("net", "structure", "backend", "points", "inputs")}
    for kind, per in (("fit", 1.0), ("predict", 1000.0 / spec["inputs"])):
        for clock, name in ((1, f"{kind}_cpu"), (0, kind)):
            values = [per * statistics.median(one[kind][clock]) for one in each]
            unit = "s" if kind == "fit" else "ms"
            found |= {f"{name}_{unit}": statistics.median(values), f"{name}_{unit}_least": min(values)}
    found["fit_mb"], found["mb"] = (statistics.median([o[key] / 2**20 for o in each]) for key in ("fit_bytes", "bytes"))
    return {**found, "variance": each[0]["variance"], "versions": each[0]["versions"]}


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times as long as nescio, per point and per input, and whether the variances agree."""
    found = []
    for ours in rows:
        for other in rows:
            same = (other["net"], other["structure"]) == (ours["net"], ours["structure"])
            if ours["backend"] != "nescio" or other["backend"] == "nescio" or not same:
                continue
            per_point = other["fit_cpu_s"] / other["points"] / (ours["fit_cpu_s"] / ours["points"])
            mine, theirs = (np.array(r["variance"][:4]) for r in (ours, other))
            equal = ours["points"] == other["points"]
            found.append(
                {
                    "row": f"{ours['net']}, {ours['structure']}, times as long: laplace-torch, {other['backend']}",
                    "fit": round(per_point, 2),
                    "per input": round(other["predict_cpu_ms"] / ours["predict_cpu_ms"], 1),
                    "memory of all": round(other["mb"] / ours["mb"], 2),
                    "difference of variances": float(np.abs(mine - theirs).max() / mine.max()) if equal else None,
                }
            )
    return found


def show(rows: Sequence[dict[str, Any]], ratios: Sequence[dict[str, Any]]) -> str:
    head = f"processor time, {max(r['n'] for r in rows)} rounds"
    lines = [f"{head:<28}{'points':>8}{'fit s':>9}{'ms / input':>12}{'MB fit':>9}{'MB':>8}"]
    for r in rows:
        lines.append(
            f"{r['row']:<28}{r['points']:>8}{r['fit_cpu_s']:>9.3f}{r['predict_cpu_ms']:>12.4f}{r['fit_mb']:>9.0f}{r['mb']:>8.0f}"
        )
    for r in ratios:
        gap = r["difference of variances"]
        said = "" if gap is None else f", variances differ by {gap:.1e}"
        lines.append(f"{r['row']}: fit {r['fit']}, per input {r['per input']}, memory {r['memory of all']}{said}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no peer, few points")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", type=Path, default=PEERS, help="the python of laplace-torch's environment")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.rounds = 1 if options.quick else options.rounds
    if not options.quick and not options.peers.exists():
        parser.error(f"no laplace-torch at {options.peers}: run `make peers-laplace`, or give --peers")
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(options, Path(folder))
    ratios = compared(rows)
    for ratio in ratios:
        gap = ratio["difference of variances"]
        if gap is not None and ", diag" in ratio["row"] and gap > 1e-3:
            raise RuntimeError(f"{ratio['row']}: the variances differ by {gap}")
    peers = {name: v for r in rows for name, v in r["versions"].items()}
    settings = {"rounds": options.rounds, "threads": options.threads, "load_before": before, "load_after": load()}
    kept = [{key: value for key, value in r.items() if key not in ("variance", "versions")} for r in rows]
    command = "python benchmarks/laplace.py" + (" --quick" if options.quick else "")
    path = keep(
        "laplace", command, [*kept, *ratios], range(options.rounds), options.quick, options.out, peers, settings
    )
    print(f"{show(rows, ratios)}\nwritten to {path.name}")
    return [*kept, *ratios]


if __name__ == "__main__":
    main()
