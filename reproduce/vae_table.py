"""Published numbers of generative models, and ours beside them.

`mark`: how far a published number can be trusted. seed: printed in the tutorial. third party: a re-implementation's, six runs. memory:
from the papers, not looked up again. `met`: whether ours is at or below what was to be reached (an error or a negative log likelihood).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

Line = dict[str, Any]
Row = dict[str, Any]
LOG = (-400.16, -218.88, -206.14, -202.25, -200.18, -197.61)  # the tutorial's bound, epochs 1 to 6, z = 20
NLL = {  # (network, k, samples): (number, ±, whose)
    ("200 tanh", 1, 1): (90.85, 0.20, "third party"),
    ("200 tanh", 1, 100): (87.00, 0.28, "third party"),
    ("200 tanh", 1, 5000): (86.83, 0.26, "third party"),
    ("200 tanh", 50, 5000): (84.78, None, "memory"),
}
EPOCHS = (1, 2, 3, 4, 5, 6, 10, 20, 50, 100)  # of which the bound is told
M2_ERROR = (11.97, 1.71, "memory")  # 100 labels, per cent


def row(
    name: str,
    metric: str,
    each: Sequence[float],
    ids: Sequence[str],
    published: tuple[float, float | None, str] | None = None,
    **more: Any,
) -> Row:
    spread = stdev(each) if len(each) > 1 else None
    number, pm, mark = published or (None, None, None)
    found: Row = {"row": name, "metric": metric, "published": number, "published_pm": pm, "mark": mark}
    found |= {"ours": round(mean(each), 4), "sd": None if spread is None else round(spread, 4)}
    found |= {"se": None if spread is None else round(spread / math.sqrt(len(each)), 4), "n": len(each)}
    return {**found, **more, "checklist": list(ids)}


def table(lines: Sequence[Line]) -> list[Row]:
    rows: list[Row] = []
    for latent in (20, 2):
        own = [x for x in lines if x["job"]["what"] == "tutorial" and x["job"]["latent"] == latent]
        name = f"tutorial, z = {latent}"
        most = min((len(x["elbo"]) for x in own), default=0)
        for epoch in (e - 1 for e in EPOCHS if e <= most):
            said = (LOG[epoch], None, "seed") if latent == 20 and epoch < len(LOG) else None
            rows.append(
                row(name, f"ELBO, epoch {epoch + 1}", [x["elbo"][epoch] for x in own], ["003-1", "003-3"], said)
            )
        for key, label in {"train_elbo": "ELBO, training images", "test_elbo": "ELBO, test images"}.items():
            if own:
                rows.append(row(name, label, [x[key] for x in own], ["003-1"]))
            beside = [x for x in lines if x["job"]["what"] == "autoencoder" and x["job"]["latent"] == latent]
        for kind, some in {name: own, f"autoencoder, z = {latent}": beside}.items():
            for part in ("train", "test") if some else ():
                rows.append(
                    row(kind, f"fit at the mean code, {part}", [x[f"{part}_fit_at_mean"] for x in some], ["001-11"])
                )
    rows += [found for line in lines if line["job"]["what"] == "binarised" for found in binarised(line)]
    return rows + others(lines)


def binarised(line: Line) -> list[Row]:
    job, found = line["job"], []
    name = f"binarised, {job['net']}, {'VAE' if job['k'] == 1 else 'IWAE k = ' + str(job['k'])}"
    for key in line:
        if key.startswith("nll_"):
            samples = int(key.removeprefix("nll_"))
            said = NLL.get((job["net"], job["k"], samples))
            more: Row = {"epochs": job["epochs"], "seconds": line["seconds"]}
            if said is not None:
                more["met"] = bool(mean(line[key]) <= said[0])
            if f"se_{samples}" in line:
                more |= {"sampling_se": mean(line[f"se_{samples}"]), "ess": mean(line[f"ess_{samples}"])}
            rows = row(name, f"-log p(x), {samples} samples", line[key], ["001-12", "003-1"], said, **more)
            found.append(rows)
    return found


def others(lines: Sequence[Line]) -> list[Row]:
    rows = []
    for alpha in sorted({x["job"]["alpha"] for x in lines if x["job"]["what"] == "m2"}):
        errors = [x["error"] for x in lines if x["job"]["what"] == "m2" and x["job"]["alpha"] == alpha]
        met = bool(mean(errors) <= M2_ERROR[0])
        name = f"M2, 100 labels, alpha = {alpha:g}"
        rows.append(row(name, "test error, %", errors, ["001-16"], M2_ERROR, met=met, runs=errors))
    ids = {
        "grey": ["003-2"],
        "conditional": ["001-16"],
        "faces": ["001-14"],
        "decoder": ["001-3"],
        "missing": ["001-4"],
    }
    for line in lines:
        job = line["job"]
        if job["what"] in ids:
            which = next((f", {job[key]}" for key in ("pixels", "given", "latent") if key in job), "")
            which += ", binarised" if job.get("binarised") else ""
            which += f", {job['images']} digits" if job["what"] == "missing" else ""
            numbers = {
                k: v
                for k, v in line.items()
                if isinstance(v, float) and k != "seconds" and not k.startswith(("se", "missing"))
            }
            rows += [row(f"{job['what']}{which}", key, [value], ids[job["what"]]) for key, value in numbers.items()]
    return rows


def show(rows: Sequence[Row]) -> str:
    lines = [f"{'':<38}{'':<34}{'published':>10}{'ours':>12}{'sd':>9}{'n':>4}"]
    for r in rows:
        said, sd = ("" if r[key] is None else f"{r[key]:.2f}" for key in ("published", "sd"))
        lines.append(f"{r['row']:<38}{r['metric']:<34}{said:>10}{r['ours']:>12.3f}{sd:>9}{r['n']:>4}")
    return "\n".join(lines)
