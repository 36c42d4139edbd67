"""Which figures a report shows, in which order, and what is said about each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nescio.report.figures.calibration import draw_coverage, draw_reliability
from nescio.report.figures.checks import draw_checks
from nescio.report.figures.importance import draw_importance
from nescio.report.figures.intervals import draw_intervals
from nescio.report.figures.parts import draw_parts
from nescio.report.figures.selective import draw_selective
from nescio.report.figures.trace import draw_trace
from nescio.report.plot_data import Judged, groups
from nescio.report.style import Numbers
from nescio.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture(NamedTuple):
    key: str
    figure: Figure
    heading: str
    text: str
    alt: str
    interval: str = ""


def pictures(run: Run, numbers: dict[str, Numbers], rows: Judged) -> list[Picture]:
    target, classes = run.inputs.target[0], run.inputs.classes
    unit = "nats" if classes else target if len(target) <= 24 else "units of the target"
    error = "share of wrong answers" if classes else "RMSE"
    kind = "held-out rows" if rows.held_out else "training rows"
    made: list[Picture] = []
    if found := numbers.get("intervals"):
        caught = float(found["coverage"])
        made.append(Picture(
            "intervals", draw_intervals(found, f"{int(found['points'])} {kind}", unit), "Predictions and their intervals",
            "Each bar is one row: where the prediction expects the truth with 90% probability. Orange-red crosses are truths it missed. "
            "Below, how wide each bar is and why.",
            f"Predictions with 90% intervals, sorted; {caught:.0%} of the truths lie inside. Below, the epistemic and aleatoric parts.",
            "90% central intervals",
        ))  # fmt: skip
    if found := numbers.get("coverage"):
        worst = float(abs(found["held"] - found["level"]).max())
        made.append(Picture(
            "coverage", draw_coverage(found, "Do intervals hold what they promise?"), "Calibration",
            "Left: for every promise from 5% to 95%, how often it was kept. Right: where in its predicted distribution each truth fell; "
            "bars that rise in the middle mean too cautious, bars that rise at both ends too bold.",
            f"Stated against observed coverage at 19 levels, at most {worst:.0%} apart, and a histogram of the integral transform.",
            "95% bands of chance",
        ))  # fmt: skip
    if found := numbers.get("reliability"):
        made.append(Picture(
            "reliability", draw_reliability(found, "Are probabilities true?"), "Calibration",
            "Among answers given with a probability of 80%, about 80% should be right. Bars show what chance alone allows.",
            f"Stated probability against the part that was right, in ten bins; the mean gap is {float(found['ece']):.1%}.",
            "95% bars of chance",
        ))  # fmt: skip
    if found := numbers.get("parts"):
        made.append(Picture(
            "parts", draw_parts(found, "Would more data help?", unit), "What it does not know, and what nobody can",
            "Epistemic uncertainty shrinks when rows of that kind are added; aleatoric uncertainty is noise of the data and stays.",
            "Each row by its aleatoric and its epistemic uncertainty; the ten with the largest epistemic part are marked.",
        ))  # fmt: skip
    if (found := numbers.get("importance")) and run.inputs.encoding is not None:
        names = list(groups(run.inputs.encoding))
        best = names[int(found["harm"].argmax())]
        made.append(Picture(
            "importance", draw_importance(found, names, "Which inputs matter?", "probability" if classes else unit),
            "Inputs that matter",
            "A column is shuffled over the rows, and the error grows by so much. Pale bars may be nothing at all. Columns that say the "
            "same can stand in for one another and then look unimportant.",
            f"The added error when each input is shuffled; the largest is that of {best}.",
            "two standard errors",
        ))  # fmt: skip
    if found := numbers.get("selective"):
        made.append(Picture(
            "selective", draw_selective(found, "What silence is worth", error), "I do not know",
            "If it may leave the rows unanswered that it doubts most, its error on the others falls along the blue line.",
            f"The error of the answers against the part that is answered; {float(found['all'][-1]):.3g} if all are.",
        ))  # fmt: skip
    if found := numbers.get("checks"):
        made.append(Picture(
            "checks", draw_checks(found, "Before the data, and after", unit, classes), "Prior and posterior",
            f"What the model would produce by its prior alone ({float(found['outside']):.0%} of it beyond the picture), what it "
            "produces now, and what was observed.",
            "Distributions of outcomes under the prior, under the fitted model, and as observed.",
        ))  # fmt: skip
    if found := numbers.get("trace"):
        names = [f"prediction {i + 1}" for i in range(found["line"].shape[0])]
        made.append(Picture(
            "trace", draw_trace(found, names, "Have the chains mixed?"), "Sampler",
            "Several chains start at different places. Where their lines cover the same stretch, the answer does not depend on the start.",
            "Traces and rank histograms of a few predictions, chain by chain.",
        ))  # fmt: skip
    return made
