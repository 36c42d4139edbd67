"""Published rates beside ours. They decide nothing: what "x" counts differs between papers, weights, bits or files.

The "700x" of lectures is traced to one cell: LeNet-5-Caffe, group horseshoe, maximum compression, 771x (573x under normal-Jeffreys):
pruning times bit precision times a codebook, which the authors call unpractical at test time. Ours to compare is the file with a codebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import mean, stdev
from typing import Any

Line = dict[str, Any]
# (net, kind): error %, kept %, by pruning, by bits, maximum; from Louizos et al. (2017), table 1, and the reading of it by others
LOUIZOS = {
    ("lenet-300-100", "sparse-vd"): (1.8, 2.2, 21, 84, 113),
    ("lenet-300-100", "normal-jeffreys"): (1.8, 10.8, 9, 36, 58),
    ("lenet-300-100", "horseshoe"): (1.8, 10.6, 9, 23, 59),
    ("lenet-5-caffe", "sparse-vd"): (1.0, 0.7, 63, 228, 365),
    ("lenet-5-caffe", "normal-jeffreys"): (1.0, 0.9, 108, 361, 573),
    ("lenet-5-caffe", "horseshoe"): (1.0, 0.6, 156, 419, 771),
    ("vgg", "normal-jeffreys"): (8.6, 6.7, 14, 56, 95),
    ("vgg", "horseshoe"): (9.0, 5.5, 18, 59, 116),
}
MOLCHANOV = {
    "lenet-300-100": (1.92, 68),
    "lenet-5-caffe": (0.75, 280),
}  # error %, weights over weights kept; the authors' readme


def settings(line: Line) -> tuple[Any, ...]:
    job = line["job"]
    return job["net"], job["kind"], job["epochs"], job["lr"]


def table(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """One row for each network, prior and way to compress; means over seeds, with the standard error of the error."""
    rows = []
    for _, group in groupby(sorted(lines, key=settings), settings):
        own = list(group)
        job = own[0]["job"]
        key = (job["net"], job["kind"])
        for name in own[0]["variants"]:
            found = [line["variants"][name] for line in own]
            weights = own[0]["parameters"]
            published = LOUIZOS.get(key)
            row: dict[str, Any] = {
                "row": f"{job['net']}, {job['kind']}, {name}, {job['epochs']} epochs",
                "metric": "32-bit weights over the file",
                "published": published[-1] if published and "codebook" in name else None,
                "mark": "third party" if published and "codebook" in name else "own",
                "ours": mean(f["rate"] for f in found),
                "checklist": ["000-36"],
                "n": len(own),
                "made": {key: own[0]["made"][key] for key in ("commit", "machine")},  # lines come from several runs
                "error %": mean(f["error"] for f in found),
                "se": stdev(f["error"] for f in found) / len(found) ** 0.5 if len(found) > 1 else None,
                "error % before": mean(line["error, mean"] for line in own),
                "kept %": 100 * mean(f["kept"] for f in found) / weights,
                "weights / kept": weights / mean(f["kept"] for f in found),
                "dense x": weights / mean(f["dense"] for f in found),
                "papers' bits x": mean(f["papers' bits"] for f in found),
                "file x": mean(f["rate"] for f in found),
                "bytes": mean(f["bytes"] for f in found),
                "flops x": own[0]["flops"] / mean(f["flops"] for f in found),
                "architecture": "-".join(str(a) for a, _ in found[0]["architecture"]),
                "published: error %, kept %, pruning x, bits x, maximum x": published,
            }
            if job["kind"] == "sparse-vd" and job["net"] in MOLCHANOV:
                row["Molchanov et al.: error %, weights / kept"] = MOLCHANOV[job["net"]]
            if any(f["bytes"] != f["claimed"] for f in found):
                raise SystemExit(f"{row['row']}: a file is not as large as claimed")
            rows.append(row)
    return rows
