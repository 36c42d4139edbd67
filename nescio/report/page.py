"""The report: one HTML file that needs nothing else, with every figure and its numbers inside. Needs the extra `report`."""

from __future__ import annotations

import base64
import json
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from nescio.errors import UnsupportedError
from nescio.posterior import Posterior
from nescio.report.pictures import Picture, pictures
from nescio.report.plot_data import Judged, judged, plot_data
from nescio.report.style import save
from nescio.report.words import verdicts
from nescio.runs import Given, Run
from nescio.runs.folder import write_text

TITLES = {
    "nll": ("Negative log likelihood", "how surprising the truth was, in nats; lower is better"),
    "rmse": ("Typical error (RMSE)", "in the units of the target; lower is better"),
    "crps": ("CRPS", "distance between prediction and truth, spread included; lower is better"),
    "coverage": ("90% intervals that hold the truth", "90% is right, more is too cautious, less too bold"),
    "accuracy": ("Right answers", "the most probable class is the true one"),
    "brier": ("Brier score", "squared distance of the probabilities from the truth; lower is better"),
    "ece": ("Calibration error (ECE)", "gap between stated and true rates; 0 is best"),
}
LEAST_CERTAIN = 8


def write_report(run: Run, posterior: Posterior, given: Given, out: str | PathLike[str]) -> dict[str, Any]:
    """`out` (.html), and beside it figures/*.svg and *.csv. Gives back the verdicts and the path."""
    rows, numbers = judged(run, posterior, given), plot_data(run, posterior, given)
    place = Path(out)
    folder = place.parent / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pictures(run, numbers, rows)
    for picture in drawn:
        save(
            picture.figure, folder / f"{picture.key}.svg", alt=picture.alt, values=numbers[picture.key],
            interval=picture.interval, source=", ".join(run.inputs.target), seed=run.config.seed,
        )  # fmt: skip
    metrics = run.metrics()
    said = verdicts(numbers, metrics, naive(run, given), len(rows.y))
    content = {
        "run": run,
        "title": ", ".join(run.inputs.target),
        "verdicts": said,
        "metrics": [(*TITLES[name], score(entry, name)) for name, entry in metrics["scores"].items()],
        "rows": len(rows.y),
        "held_out": rows.held_out,
        "pictures": [embedded(picture, folder) for picture in drawn],
        "least": least_certain(run, rows),
        "fit": metrics["fit"],
        "problems": (metrics["fit"].get("mixing") or {}).get("problems", []),
        "environment": json.loads((run.folder / "environment.json").read_text(encoding="utf-8")),
        "comparison": comparison(run),
    }
    write_text(place, rendered(content))
    return {"report": str(place), "verdicts": [[v.mark.value[1], v.title, v.text] for v in said]}


def rendered(content: dict[str, Any]) -> str:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise UnsupportedError(
            "reports need jinja2", "an installation without it", "pip install 'nescio[report]'"
        ) from None
    house = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = (files("nescio.report") / "page.html").read_text(encoding="utf-8")
    return house.from_string(text).render(content)


def embedded(picture: Picture, folder: Path) -> dict[str, str]:
    """Picture and numbers as data: in the page itself."""

    def inside(suffix: str, kind: str) -> str:
        return f"data:{kind};base64," + base64.b64encode((folder / f"{picture.key}{suffix}").read_bytes()).decode()

    return {
        "key": picture.key,
        "heading": picture.heading,
        "text": picture.text,
        "alt": picture.alt,
        "svg": inside(".svg", "image/svg+xml"),
        "csv": inside(".csv", "text/csv"),
    }


def score(entry: dict[str, Any], name: str) -> str:
    value, se = entry["value"], entry["se"]
    form = "{:.1%}" if name in ("coverage", "accuracy") else "{:.3g}"
    return form.format(value) + ("" if se is None else " ± " + form.format(se))


def naive(run: Run, given: Given) -> float | None:
    """What is missed without any inputs: the spread of the first target, or the error rate of the commonest class."""
    y = given.test_y if given.held_out else given.y
    if run.inputs.classes:
        commonest = int(given.y.mode().values)
        return float((y != commonest).double().mean())
    return float(y[:, 0].double().std()) if len(y) > 1 else None


def least_certain(run: Run, rows: Judged) -> dict[str, Any]:
    """The rows with the largest epistemic part, with their inputs as the network got them."""
    doubt = rows.predictive.epistemic.reshape(len(rows.y), -1).mean(1)
    order = torch.argsort(doubt, descending=True, stable=True)[:LEAST_CERTAIN]
    names = run.inputs.columns[:8]
    lines = []
    for i in order.tolist():
        if run.inputs.classes:
            found = rows.predictive.probabilities
            assert found is not None
            best = found[i].reshape(-1)
            answer = f"{run.inputs.classes[int(best.argmax())]} ({float(best.max()):.0%})"
            truth = run.inputs.classes[int(rows.y[i].reshape(-1)[0])]
        else:
            answer = f"{float(rows.predictive.mean[i]):.3g} ± {float(rows.predictive.std[i]):.2g}"
            truth = f"{float(rows.y[i]):.3g}"
        inputs = [f"{float(v):.4g}" for v in rows.x[i][: len(names)]] if rows.x.dim() == 2 else []
        lines.append([str(int(rows.index[i]) + 1), answer, truth, *inputs])
    return {"head": ["row", "prediction", "truth", *names], "lines": lines, "cut": max(0, len(run.inputs.columns) - 8)}


def comparison(run: Run) -> dict[str, Any] | None:
    """What `nescio compare --out FOLDER` has left there."""
    path = run.folder / "comparison.json"
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError:
        return None
