"""More data explain epistemic uncertainty away and leave the aleatoric one as it is (Kendall & Gal, 2017, table 3), on real sets.

A quarter, a half and all of the training rows of UCI tables, the network and the number of optimisation steps the same; both parts on the
same test rows, standardised. Networks that predict their own noise, by a linearised Laplace approximation, by five MAP networks, by
microcanonical ensembles (MAP, then MCLMC), and by dropout, whose spread is no function of N in theory and need not fall. Means over splits.
Theirs: epistemic 7.73, 4.38, 2.78 and aleatoric about 0.5 throughout (Make3D, from memory).

    python reproduce/explained_away.py [--sets energy concrete] [--splits 3] [--only ensemble] [--budget SECONDS] [--quick]

Each finished posterior is a line of explained_away.rows.jsonl; the figure is docs/figures/explained_away.svg.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from evidence import write
from expectation import Expectation, show
from resumable import Job, Line, finish, options
from torch import nn

from nescio import Model, fit
from nescio.data import load_uci
from nescio.infer import MAP, MCLMC, VI, Laplace, Method
from nescio.infer.curvature import full
from nescio.infer.families import BernoulliDropout
from nescio.laws import Normal, fan_in
from nescio.likelihoods import Heteroscedastic
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior.gaussian import GaussianPosterior

PARTS = (0.25, 0.5, 1.0)
SETS = ("concrete", "energy", "wine", "power")
MOST = 2000  # rows of the larger tables that count as all
STEPS, WIDTH = 1500, 20
IDS = ("000-3", "000-4")
ALT = (
    "One panel for each table: against the part of the training data, the epistemic variance of the Laplace approximation, in blue, falls"
    " to less than half, that of an ensemble of modes need not, and the aleatoric variance, in orange, stays about where it is."
)


def methods(rows: int, quick: bool) -> dict[str, Callable[[], Method]]:
    batch = min(rows, 64)
    epochs = 2 if quick else max(1, round(STEPS * batch / rows))
    common: dict[str, Any] = {"epochs": epochs, "lr": 0.01, "batch_size": batch}
    walk = {"draws": 4, "warmup": 4} if quick else {"draws": 100, "warmup": 300, "thin": 5}
    return {
        "Laplace": lambda: MAP(**common) >> Laplace(full),
        "ensemble": lambda: 5 * MAP(**common),
        "dropout": lambda: VI(BernoulliDropout(0.05), **common),
        "microcanonical": lambda: 4 * (MAP(**common) >> MCLMC(**walk)),  # type: ignore[arg-type]
    }


NAMES = tuple(methods(10, True))


def train(job: Job, until: float) -> Line:
    x, y, x_test, y_test = load_uci(job["set"], job["split"])
    if job["quick"]:
        x, y, x_test, y_test = x[:40], y[:40], x_test[:10], y_test[:10]
    order = Noise(job["split"]).at("rows").permutations(1, len(x))[0][:MOST]
    x, y = x[order], y[order]
    x_mean, x_sd, y_mean, y_sd = x.mean(0), x.std(0).clamp_min(1e-6), y.mean(0), y.std(0)  # of all rows, for every part
    x, x_test = ((t - x_mean) / x_sd for t in (x, x_test))
    y, y_test = ((t - y_mean) / y_sd for t in (y, y_test))
    rows = max(8, round(job["part"] * len(x)))
    x, y, x_test, y_test = (t.float() for t in (x[:rows], y[:rows], x_test, y_test))
    with Noise(job["split"]).at("net").scope():
        net = mlp(x.shape[1], WIDTH, WIDTH, 2, activation=nn.Tanh)
    model = Model(net, {"*.weight": Normal(0.0, fan_in), "*": Normal(0.0, 1.0)}, Heteroscedastic())
    posterior = fit(model, (x, y), methods(rows, job["quick"])[job["method"]](), seed=job["split"], compile=False)
    if isinstance(posterior, GaussianPosterior):
        posterior = posterior.linearize()
    predicted = posterior.predict(x_test, draws=200)
    return {
        "rows": rows,
        "epistemic": float(predicted.epistemic.mean()),
        "aleatoric": float(predicted.aleatoric.mean()),
        "rmse": float((predicted.mean - y_test).square().mean().sqrt()),
        "nll": -float(predicted.log_prob(y_test).mean()),
    }


def means(found: Sequence[Line], **job: Any) -> dict[str, float] | None:
    own = [line for line in found if all(line["job"][key] == value for key, value in job.items())]
    return (
        {key: float(np.mean([line[key] for line in own])) for key in ("epistemic", "aleatoric", "rmse", "nll")}
        if own
        else None
    )


def table(found: Sequence[Line]) -> Iterator[Expectation]:
    for which in dict.fromkeys(line["job"]["set"] for line in found):
        for method in NAMES:
            by = {part: means(found, set=which, method=method, part=part) for part in PARTS}
            for part, own in by.items():
                for key, value in (own or {}).items():
                    n = sum(line["job"]["set"] == which and line["job"]["method"] == method for line in found) // len(
                        PARTS
                    )
                    yield Expectation(f"{which}: {method}", f"{key}, {part:g} of the rows", value, n)
            quarter, whole = by[0.25], by[1.0]
            if quarter is None or whole is None:
                continue
            falls = quarter["epistemic"] / whole["epistemic"]
            stays = quarter["aleatoric"] / whole["aleatoric"]
            claim = {"low": 1.2, "says": "more data explain it away"} if method != "dropout" else {}
            name = f"{which}: {method}"
            yield Expectation(name, "epistemic, a quarter over all rows", falls, 1, **claim)  # type: ignore[arg-type]
            yield Expectation(
                name, "its fall over that of the aleatoric part", falls / stays, 1, low=1.0, says="more than the other"
            )


def draw(found: Sequence[Line], out: Path) -> None:
    from nescio.report import save
    from nescio.report.style import ALEATORIC, EPISTEMIC, canvas, styled

    sets = list(dict.fromkeys(line["job"]["set"] for line in found))
    values: dict[str, np.ndarray] = {"part": np.array(PARTS)}
    with styled():
        figure, axes = canvas(1, len(sets), 2.6 * len(sets) + 0.6, 3.2, share_y=False)
        figure.suptitle("What is not known (blue) and what is noise (orange) as data come in", x=0.008, ha="left")
        for axis, which in zip(axes, sets, strict=True):
            for method, line_style in zip(NAMES, ("-", "--", ":", "-."), strict=True):
                by = [means(found, set=which, method=method, part=part) for part in PARTS]
                if by == [None] * len(PARTS):
                    continue
                for kind, colour in (("epistemic", EPISTEMIC), ("aleatoric", ALEATORIC)):
                    y = np.array([math.nan if own is None else own[kind] for own in by])
                    values[f"{which}, {method}, {kind}"] = y
                    label = method if kind == "epistemic" else None
                    axis.plot(PARTS, y, line_style, color=colour, marker="o", markersize=3, label=label)
            axis.set(title=which, xscale="log", yscale="log", xlabel="part of the rows")
            axis.set_xticks(PARTS, ["¼", "½", "all"])
            axis.minorticks_off()
        axes[0].set_ylabel("variance")
        axes[0].legend(loc="best")
    save(
        figure,
        out / "explained_away.svg",
        alt=ALT,
        values=values,
        source="000-3, 000-4: after Kendall & Gal (2017), table 3",
        seed=0,
    )


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    given = parser.parse_args(arguments)
    if given.quick:
        given.splits, given.sets, given.workers = 1, SETS[:1], 1
    jobs = [
        {"set": which, "method": name, "part": part, "split": split, "quick": given.quick}
        for name in given.only
        for split in range(given.splits)
        for which in given.sets
        for part in PARTS
    ]
    path = given.rows or given.out / f"explained_away{'.quick' if given.quick else ''}.rows.jsonl"
    found = finish(jobs, train, path, given.device, given.workers, given.budget)
    if not found:
        return []
    rows = [expected.to_row(IDS, given.quick) for expected in table(found)]
    chosen = f" --sets {' '.join(given.sets)} --splits {given.splits} --only {' '.join(given.only)}"
    command = "python reproduce/explained_away.py" + (" --quick" if given.quick else chosen)
    write(
        "explained_away",
        command,
        rows,
        sorted({line["job"]["split"] for line in found}),
        given.quick,
        given.out,
        found[0]["made"],
    )
    if find_spec("matplotlib") is not None:
        given.figures.mkdir(parents=True, exist_ok=True)
        draw(found, given.figures)
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
