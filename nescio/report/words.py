"""Verdicts in plain words, for a reader who is no statistician. Each says what was looked at, what was found, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, final

import numpy as np

from nescio.report.figures.binomial import binomial_band
from nescio.report.style import Numbers

NOTHING = 1e-9  # a share that is rounding
PASSES = " What is off by ten points would often pass too: hold more rows out (--test 0.3), or judge by many splits."


class Mark(Enum):
    """A sign and a word, so that nobody has to tell colours apart."""

    GOOD = ("✓", "good")
    FAIR = ("~", "take care")
    BAD = ("✗", "not good")


@final
@dataclass(frozen=True)
class Verdict:
    mark: Mark
    title: str
    text: str


def verdicts(numbers: dict[str, Numbers], metrics: dict[str, Any], spread: float | None, rows: int) -> list[Verdict]:
    """`spread`: the standard deviation of a numeric target, or for classes the error rate of always naming the commonest."""
    said = []
    scores = metrics["scores"]
    if "coverage" in scores:
        said += [covered(scores["coverage"]["value"], rows), explained(scores["rmse"]["value"], spread)]
    elif "accuracy" in scores:
        said += [trusted(numbers["reliability"]), right(scores["accuracy"]["value"], spread)]
    if "parts" in numbers:
        said.append(taught(numbers["parts"]))
    held = bool(scores)
    if "selective" in numbers:
        said.append(found_out(numbers["selective"], held))
    said.append(mixed(metrics["fit"], held))
    return said


def covered(part: float, rows: int) -> Verdict:
    low, high = (float(bound[0]) for bound in binomial_band(rows, np.array([0.9]), 0.05))
    text = f"Of {rows} rows that were held out, {part:.0%} lie in their 90% interval. Chance alone would give {low:.0%} to {high:.0%}."
    if low <= part <= high and too_few(rows, 0.9):
        return Verdict(Mark.FAIR, "Too few rows to tell whether the intervals hold", text + PASSES)
    if low <= part <= high:
        return Verdict(Mark.GOOD, "The intervals can be taken at their word", text)
    if part > high:
        return Verdict(
            Mark.FAIR, "The intervals are wider than they need to be", text + " They promise less than they hold."
        )
    mark = Mark.FAIR if part > low - 0.05 else Mark.BAD
    return Verdict(
        mark, "The intervals are too narrow", text + " Widen them in your mind, or calibrate them on held-out rows."
    )


def too_few(rows: int, stated: float) -> bool:
    """Whether what is right ten points less often than `stated` would be blamed in less than half of all cases."""
    low = binomial_band(rows, np.array([stated]), 0.05)[0]
    median = binomial_band(rows, np.array([max(stated - 0.1, 0.0)]), 1.0)[0]
    return bool(median[0] >= low[0])


def explained(rmse: float, sd: float | None) -> Verdict:
    if not sd:
        return Verdict(Mark.FAIR, "The error", f"The typical error is {rmse:.3g}.")
    part = 1 - (rmse / sd) ** 2
    mark = Mark.GOOD if part > 0.5 else Mark.FAIR if part > 0.1 else Mark.BAD
    text = f"The typical error is {rmse:.3g}, where always naming the mean would be off by {sd:.3g}: "
    text += f"{max(part, 0):.0%} of the variance is explained."
    return Verdict(mark, "What the inputs tell about the target", text)


def right(accuracy: float, naive: float | None) -> Verdict:
    text = f"{accuracy:.1%} of the answers are right."
    if naive is None:
        return Verdict(Mark.FAIR, "How often it is right", text)
    mark = Mark.GOOD if 1 - accuracy < 0.5 * naive else Mark.FAIR if 1 - accuracy < naive else Mark.BAD
    return Verdict(
        mark, "How often it is right", f"{text} Always naming the commonest class would be right in {1 - naive:.1%}."
    )


def trusted(reliability: Numbers) -> Verdict:
    kept = reliability["count"] > 0
    outside = (reliability["right"] < reliability["low"]) | (reliability["right"] > reliability["high"])
    share = float(reliability["count"][outside & kept].sum() / reliability["count"].sum())
    gap = float(reliability["ece"])
    text = f"Stated probabilities and what happened differ by {gap:.1%} on average; "
    text += f"{share:.0%} of the answers are in bins that chance cannot explain."
    rows = int(reliability["count"].sum())
    stated = float(reliability["count"][kept] @ reliability["stated"][kept]) / rows
    if share < 0.1 and too_few(rows, stated):
        text = f"{text} Only {rows} rows were held out."
        return Verdict(Mark.FAIR, "Too few rows to tell whether the probabilities hold", text + PASSES)
    if share < 0.1:
        return Verdict(Mark.GOOD, "The probabilities can be taken at their word", text)
    return Verdict(Mark.FAIR if gap < 0.1 else Mark.BAD, "The probabilities are off", text)


def taught(parts: Numbers) -> Verdict:
    """Variances add, and so do nats; standard deviations do not."""
    power, measure = (1, "in nats") if float(parts["nats"]) else (2, "as variance")
    epistemic, aleatoric = (float((parts[name] ** power).mean()) for name in ("epistemic", "aleatoric"))
    share = epistemic / max(epistemic + aleatoric, 1e-300)
    text = f"About {share:.0%} of the uncertainty ({measure}) comes from not knowing, the rest is noise in the data."
    if share < NOTHING:
        text = "All networks say the same, or there is but one: ask several (5 * MAP(), Laplace, a sampler) what they do not know."
        return Verdict(Mark.FAIR, "One network cannot tell what it does not know", text)
    if share > 0.5:
        return Verdict(
            Mark.FAIR, "More data would help", f"{text} Collect rows like those in the list of least known ones."
        )
    uneven = float(parts["epistemic"].max()) > 3 * float(np.median(parts["epistemic"]))
    where = " Some rows are far less known than others: see the list." if uneven else ""
    if share > 0.2:
        return Verdict(Mark.GOOD, "More data would help somewhat", text + where)
    title = "More rows of the same kind would change little"
    return Verdict(Mark.GOOD, title, f"{text} Better inputs would help more than more rows.{where}")


def found_out(selective: Numbers, held: bool = True) -> Verdict:
    half = len(selective["risk"]) // 2
    now, then = float(selective["all"][-1]), float(selective["risk"][max(half - 1, 0)])
    text = f"If it answers only the half of the rows that it doubts least, its error goes from {now:.3g} to {then:.3g}."
    text += "" if held else " These are rows that it has learned from, which flatters."
    if now == 0:
        return Verdict(Mark.GOOD, "It makes no error to find", "No error was made on these rows.")
    mark = Mark.GOOD if then < 0.8 * now else Mark.FAIR if then < now else Mark.BAD
    title = "It knows when it does not know" if mark is Mark.GOOD else "Its doubt finds few of its errors"
    return Verdict(mark, title, text)


def mixed(fit: dict[str, Any], held: bool = True) -> Verdict:
    judge = "judge it by the held-out rows above" if held else "hold rows out to judge it"
    if fit.get("interrupted"):
        return Verdict(
            Mark.FAIR,
            "The run was interrupted",
            "These are the draws that it had made; resume it for the whole answer.",
        )
    mixing = fit.get("mixing")
    if not mixing:
        text = f"The method gives no chains that could be compared: {judge}."
        return Verdict(Mark.FAIR, "Nothing to diagnose", text)
    rhat = mixing.get("rhat")
    told = "cannot be computed" if rhat is None else f"is {rhat:.2f}"
    if not mixing["problems"]:
        return Verdict(Mark.GOOD, "The chains agree", f"R-hat of the predictions {told}; 1.01 or less is good.")
    if mixing["chains"] == 1:
        return Verdict(Mark.FAIR, "One chain has nothing to agree with", f"Run four, 4 * the method, and {judge}.")
    text = (
        f"R-hat of the predictions {told}, where 1.01 or less is good: the {mixing['chains']} chains walk in different places. "
        f"Together they are an ensemble, not an exact posterior: {judge}."
    )
    return Verdict(Mark.FAIR, "The chains have not become one", text)
