"""Tables of docs/generative.md."""

from __future__ import annotations

from kept import kept, number, picture, table, with_error


def binarised() -> str:
    found, rows = kept("vae"), []
    for net in ("200 tanh, VAE", "200 tanh, IWAE k = 50", "500 relu, VAE"):
        cells = [net]
        for samples in (1, 100, 5000):
            row = found[f"binarised, {net}", f"-log p(x), {samples} samples"]
            said = "" if row["published"] is None else f" ({number(row['published'], 2)}, {row['mark']})"
            cells.append(with_error(row, 2) + said)
        rows.append(cells)
    return table(("−log p(x), nats", "1 sample", "100", "5000"), rows)


def others() -> str:
    """Densities of grey digits, and errors with few labels."""
    wanted = ("grey", "conditional", "M2", "faces")
    rows = [
        (row, metric, with_error(entry, 1), number(entry["published"], 2), number(entry["n"], 0))
        for (row, metric), entry in kept("vae").items()
        if row.startswith(wanted)
    ]
    return table(("", "what", "ours", "published", "runs"), rows)


def outside() -> str:
    found, rows = kept("vae"), []
    for name in ("digits", "fashion", "letters"):
        cells = [
            number(found["decoder", f"{name}: {what}"]["ours"])
            for what in ("log p", "draws that agree", "epistemic variance")
        ]
        told = [found.get(("decoder", f"AUROC {name} by {score}")) for score in ("log p", "agreement", "epistemic")]
        rows.append((name, *cells, *("" if row is None else number(row["ours"], 2) for row in told)))
    head = ("", "log p", "draws that agree", "epistemic variance")
    return table((*head, "AUROC by log p", "by agreement", "by epistemic variance"), rows)


def halves() -> str:
    rows = [
        (row, metric, number(x["ours"], 3)) for (row, metric), x in kept("vae").items() if row.startswith("missing")
    ]
    return table(("", "what", "found"), rows)


def orders() -> str:
    """Pictures to order: zeros and ones, a law of z for each class."""
    found = kept("vae").get(("conditional, label, binarised", "pictures of the class asked for, by their neighbours"))
    if found is None:
        return "With zeros and ones and a law of z for each class (`learned_prior=True`): not run in full yet."
    said = f"With zeros and ones and a law of z for each class (`learned_prior=True`) {100 * found['ours']:.0f}% of the pictures are of the"
    return f"{said} class that was asked for, by their nearest test digits." + picture("vae_orders", "Digits to order.")
