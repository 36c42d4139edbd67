"""Is curvlinops what nescio's curvature should stand on? Seconds of the processor beside it, and what it does with layers.

784-100-100-10, ten classes, 10,000 points, one thread: Kronecker factors (not decomposed), and the product of the Gauss-Newton matrix with
ten vectors. docs/architecture.md has the decision.

    make peers-laplace
    python benchmarks/curvature.py [--quick] [--peers PYTHON]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from laplace import PEERS
from laplace_case import data, network, timed
from launch import launch
from record import RESULTS, keep, load

from nescio import Model
from nescio.data.source import source
from nescio.infer.curvature import Sweep, kfac
from nescio.infer.curvature.low_rank import times
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.posterior.places import places


def ours(points: int, threads: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    x, y = data("mlp", points)
    model = Model(network("mlp"), Normal(0, 1), Categorical())
    params = {**model.point(model.noise(0, "point")), **model.network.statistics()}
    index = places(model.prior, None, "this")
    sweep = Sweep(model, params, index, source((x, y)), None, model.noise(0, "sweep"))
    vectors = torch.randn(sweep.size, 10, dtype=torch.float64)
    times(sweep, vectors)
    return {
        "factors": timed(lambda: kfac.measure(sweep), 3)[2],
        "product": timed(lambda: times(sweep, vectors), 3)[2],
    }


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no peer, few points")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", type=Path, default=PEERS, help="the python of an environment with curvlinops")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    points, before = 256 if options.quick else 10_000, load()
    mine = ours(points, options.threads)
    theirs: dict[str, Any] = {}
    if not options.quick:
        with tempfile.TemporaryDirectory() as folder:
            spec = {"points": points, "threads": options.threads}
            theirs = launch(str(options.peers), "curvature_peer.py", spec, Path(folder))
    rows: list[dict[str, Any]] = []
    for job in ("factors", "product"):
        seconds = [statistics.median(one[job]) if job in one else None for one in (mine, theirs)]
        row = {"row": job, "nescio_cpu_s": seconds[0], "curvlinops_cpu_s": seconds[1], "points": points}
        rows.append(row)
    rows += [{"row": f"KFAC, {layer}", "curvlinops": said} for layer, said in theirs.get("layers", {}).items()]
    for row in rows:
        print("  ".join(f"{key}: {value}" for key, value in row.items()))
    peers = {"curvlinops-for-pytorch": theirs["version"]} if theirs else {}
    settings = {"threads": options.threads, "load_before": before, "load_after": load()}
    command = "python benchmarks/curvature.py" + (" --quick" if options.quick else "")
    keep("curvature", command, rows, [0], options.quick, options.out, peers, settings)
    return rows


if __name__ == "__main__":
    main()
