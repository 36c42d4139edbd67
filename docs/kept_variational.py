"""Tables of docs/variational.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kept import RESULTS, expectations, kept, number, picture, table, with_error

READINGS = (
    *("base", "MC dropout", "concrete dropout", "concrete dropout, temperature 0.1"),
    *("variational, per unit from 0.1", "variational, per unit from 1", "variational, per weight"),
)


def tutorial() -> str:
    found, rows = kept("dropout_tutorial"), []
    for name in READINGS:
        cells = []
        for rule in ("naive", "MC"):
            row = found.get((name, f"accuracy %, tutorial test images, {rule}"))
            cells += ["", "", ""] if row is None else [number(row["published"], 2), with_error(row, 2), within(row)]
        rows.append((name, *cells))
    return table(("", "naive, tutorial", "ours", "within", "MC, tutorial", "ours", "within"), rows)


def within(row: dict[str, Any]) -> str:
    return "yes" if row["within strictly"] else "loosely" if row["within"] else "**no**"


def log() -> str:
    """How much of the tutorial's training log agrees, and what does not."""
    rows = {
        metric: row
        for (name, metric), row in kept("dropout_tutorial").items()
        if name == "MC dropout" and "epoch" in metric
    }
    words = {"cent": "cross-entropy", "wd": "weight decay", "acc": "accuracy"}
    off = [metric for metric, row in rows.items() if not row["within"]]
    apart = [
        f"{words[m.split(',')[0]]} of{m.split(',')[1]} ({number(100 * (rows[m]['ours'] / rows[m]['published'] - 1), 1)}%)"
        for m in off
    ]
    return f"Of its training log over ten epochs {len(rows) - len(off)} of {len(rows)} numbers agree; outside: {', '.join(apart)}."


def masks() -> str:
    """Learned keep probabilities, 5% to 95% of units."""
    found, rows = kept("dropout_tutorial"), []
    for name, n in {"concrete dropout": "1000", "concrete dropout, N = 10000": "10 000"}.items():
        of = {layer: [found[name, f"keep before {layer}, {q} of units"]["ours"] for q in ("5%", "median", "95%")]
              for layer in ("2.weight", "4.weight")}  # fmt: skip
        rows.append((n, *(f"{number(m, 3)} ({number(a, 3)} to {number(b, 3)})" for a, m, b in of.values())))
    return table(("N", "before the second layer: median (5% to 95%)", "before the third"), rows)


def doubts() -> str:
    found, rows = kept("dropout_tutorial"), []
    cases = {f"MC dropout, weight decay {d}": f"MC dropout, weight decay {d}" for d in ("1e-06", "0.01")}
    for name, said in {
        "MC dropout": "MC dropout, weight decay 0.0001",
        **cases,
        "concrete dropout": "concrete dropout",
    }.items():
        each = [
            found[name, f"{what}, {which} digits"]
            for which in ("real", "blended")
            for what in ("epistemic", "aleatoric")
        ]
        accuracy = found[name, "accuracy %, official test images, MC"]
        rows.append((said, with_error(accuracy, 2), *(number(row["ours"], 3) for row in each)))
    head = ("", "accuracy %, official test images", "real: epistemic", "aleatoric", "blended: epistemic", "aleatoric")
    return table(head, rows)


def uci() -> str:
    found, rows = kept("uci_dropout"), []
    for name in dict.fromkeys(row.split(",")[0] for row, _ in found):
        cells = [name]
        for metric in ("nll", "rmse"):
            row = found[f"{name}, VI(BernoulliDropout(p))", metric]
            beside = row["beside"]["MC dropout, 4000 epochs"]
            apart = beside["difference"] / beside["difference_se"]
            cells += [f"{beside['value']:.4g}".replace("-", "−"), f"{row['ours']:.4g}".replace("-", "−")]
            cells += [f"**{number(apart, 1)}**" if abs(apart) > 2 else number(apart, 1)]
        rows.append(cells)
    return table(("", "NLL, theirs", "ours", "apart by, se", "RMSE, theirs", "ours", "apart by, se"), rows)


def mnist() -> str:
    found, rows = kept("mnist_bbb"), []
    for kind in ("plain network", "dropout", "MeanField, Gaussian", "MeanField, mixture"):
        own = {u: found[f"{kind}, {u} units, 100 epochs", "error %, MC"] for u in (400, 800, 1200)}
        cells = [f"{number(row['ours'], 2)} ({number(row['paper, from memory'], 2)})" for row in own.values()]
        sd = own[1200]["mean sd"]
        rows.append((kind, *cells, number(own[1200]["published"], 2), "" if sd is None else number(sd)))
    return table(("error %", "400 units", "800", "1200", "read, 1200", "mean sd of a weight"), rows)


def pairs(name: str, first: str, cases: Sequence[str]) -> str:
    """Errors in % and NLL of standard (averaged weights) and MC prediction."""
    found, rows = kept(name), []
    metrics = [
        (f"{what}, {rule}", digits) for what, digits in (("error", 2), ("nll", 3)) for rule in ("standard", "MC")
    ]
    for case in cases:
        each = [(found.get((case, metric)), digits) for metric, digits in metrics]
        rows.append((case, *("" if row is None else number(row["ours"], digits) for row, digits in each)))
    return table((first, *(metric for metric, _ in metrics)), rows)


def lenet() -> str:
    cases = [f"{digits}: {kind}" for digits in ("mnist", "mnist, 1/16", "cifar10") for kind in ("all", "fc", "none")]
    return pairs("bayesian_lenet", "dropout after", cases)


def lstm() -> str:
    kinds = ("none", "inputs", "per step", "one mask", "one mask each", "mean field", "ensemble")
    return pairs("lstm_text", "masks", kinds)


def families() -> str:
    found, rows = kept("vi_families"), []
    for name in ("MeanField", "MultiplicativeFlow", "LowRank", "MatrixNormal", "FullRank"):
        metrics = ("sd of f in the gap over that of HMC", "sd of f on the data over that of HMC", "ELBO, nats")
        rows.append((f"`{name}()`", *(number(found[name, metric]["ours"]) for metric in metrics)))
    return table(("", "sd in the gap over that of HMC", "on the data over that of HMC", "ELBO, nats"), rows)


def widths() -> str:
    found, rows = kept("vi_rates"), []
    for width in (16, 64, 256, 1024):
        rates = [found[f"concrete dropout, {layer}.weight", f"rate at width {width}"]["ours"] for layer in (2, 4)]
        loss = found["concrete dropout", f"test NLL at width {width}"]["ours"]
        rows.append((str(width), *(number(x, 3) for x in (*rates, loss))))
    return table(("units", "rate into the second layer", "into the output", "test NLL"), rows)


def co2() -> str:
    if not (RESULTS / "co2.json").exists():
        return "Not run in full yet."
    return expectations("co2") + picture("co2", "CO2 at Mauna Loa, continued by six methods.")
