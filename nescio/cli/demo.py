"""`nescio demo`: the newcomer's path on bundled real data, with the commands that do the same."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

from nescio.cli.fit import fit
from nescio.cli.predict import predict
from nescio.cli.report import report
from nescio.cli.voice import Voice
from nescio.data.bundled import TARGETS
from nescio.errors import FileError
from nescio.runs import Wishes
from nescio.runs.config import NAME

QUICK = "4 * (MAP(epochs=3) >> MCLMC(draws=5, warmup=10))"


def demo(out: Path, seed: int, quick: bool) -> None:
    """Eight ingredients and an age, one strength: 927 mixtures to learn from, 103 to be judged by."""
    voice = Voice(False)
    if (out / NAME).is_file():  # an earlier demonstration, which may be shown anew
        shutil.rmtree(out)
    voice.say(f"$ nescio fit concrete --out {out}")
    run = fit(
        voice, "concrete", [], Wishes(method=QUICK if quick else None), out, None, seed, 0.1, False, False, [], None
    )  # fmt: skip
    new = out / "new.csv"
    mixtures(run.folder / "data.csv", new)
    voice.say(f"\n$ nescio predict {out} {new} --risk 0.1 --within 10")
    predict(voice, out, new, None, 0.9, 0.1, 10.0, False)
    with open(out / "new.predictions.csv", encoding="utf-8") as stream:
        head, *rows = list(csv.reader(stream))
    voice.table(head, rows)
    voice.say(f"\n$ nescio report {out}")
    report(voice, out, None)


def mixtures(source: Path, new: Path) -> None:
    """Five rows of the table without their strength, and one that no one has ever mixed: ten times the cement."""
    try:
        with open(source, encoding="utf-8", newline="") as stream:
            head, *rows = list(csv.reader(stream))
        at = head.index(TARGETS["concrete"])
        some = rows[:: len(rows) // 5][:5]
        strange = list(some[0])
        strange[0] = str(10 * float(strange[0]))
        with open(new, "w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows(
                [cell for i, cell in enumerate(row) if i != at] for row in [head, *some, strange]
            )
    except OSError as error:
        raise FileError(
            f"{new} must be writable", error.strerror or "an error", "choose another folder with --out"
        ) from error
