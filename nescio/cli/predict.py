"""`nescio predict`: new rows in, one line of predictions for each, a few thousand at a time so that no file is too large."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from nescio.cli.voice import Voice
from nescio.data.image_folder import load
from nescio.data.streaming import stream_records
from nescio.errors import FileError, InputError
from nescio.runs import Run, columns, open_run, rule
from nescio.runs.arrays import as_inputs, read_arrays

DRAWS = 200
IMAGES = 256  # a time


def predict(
    voice: Voice,
    folder: Path,
    data: Path,
    out: Path | None,
    level: float,
    risk: float | None,
    within: float | None,
    lines: bool,
) -> None:
    if not 0 < level < 1:
        raise InputError("a level lies strictly between 0 and 1", str(level), "use 0.9 for a 90% interval")
    if within is not None and risk is None:
        raise InputError("a tolerance belongs to a risk", f"--within {within:g}", "add --risk 0.1")
    run = open_run(folder)
    posterior = run.posterior()
    if posterior.info.get("interrupted"):
        voice.say("note: the run was interrupted; these are the draws that it had made")
    decide = None
    if risk is not None:
        decide = rule(run, posterior, run.given() if run.inputs.classes else None, risk, within)
        voice.say(decide.said)
    said: set[str] = set()
    done = abstained = 0
    place = data.with_name(f"{data.stem}.predictions.csv") if out is None else out
    with written(place, lines) as stream:
        head = None
        for numbers, x, notes in parts(run, data):
            for note in notes:
                if note not in said:
                    said.add(note)
                    voice.say(note)
            table = columns(posterior.predict(x, draws=DRAWS), run, level, decide)
            head = write(stream, numbers, table, head, lines)
            done += len(numbers)
            abstained += int(table["abstain"].sum()) if "abstain" in table else 0
    voice.say(f"{done} rows predicted" + (f", {abstained} of them with 'I do not know'" if decide else ""))
    if not lines:
        voice.say(f"predictions: {place}")
        voice.end({"rows": done, "abstained": abstained if decide else None, "file": str(place)})


def parts(run: Run, data: Path) -> Iterator[tuple[list[Any], torch.Tensor, tuple[str, ...]]]:
    """Names of rows, inputs, and what to say about them."""
    if run.inputs.encoding is not None:
        for records in stream_records(data):
            if not records.count:
                raise InputError(f"{data}: there must be a row to predict", "none", "add rows")
            typed, notes = run.inputs.encoding.typed(records)
            x, more = run.inputs.encoding.apply(typed)
            yield list(range(records.first, records.first + records.count)), x, (*notes, *more)
        return
    if data.is_dir():
        files = sorted(file for file in data.rglob("*") if file.suffix.lower() in (".png", ".jpg", ".jpeg"))
        if not files:
            raise InputError(f"{data} must hold images", "none", "give a folder of .png or .jpg files")
        for first in range(0, len(files), IMAGES):
            some = files[first : first + IMAGES]
            yield [str(f.relative_to(data)) for f in some], fitting(run, as_inputs(load(some)[0], str(data)), data), ()
        return
    found = read_arrays(data)
    name = "x_test" if "x_test" in found else "x"
    if name not in found:
        raise InputError(
            f"{data} must hold x or x_test", ", ".join(sorted(found)[:10]), "save it as np.savez(path, x=x)"
        )
    x = fitting(run, as_inputs(found[name], f"{data}: {name}"), data)
    for first in range(0, len(x), IMAGES):
        some = x[first : first + IMAGES]
        yield list(range(first, first + len(some))), some, ()


def fitting(run: Run, x: torch.Tensor, data: Path) -> torch.Tensor:
    if tuple(x.shape[1:]) != run.inputs.shape:
        must = f"{data}: inputs must have shape {run.inputs.shape}, as in training"
        raise InputError(must, str(tuple(x.shape[1:])), "give inputs of the same size")
    return x


@contextmanager
def written(place: Path, lines: bool) -> Iterator[TextIO]:
    """A file that appears when it is complete; standard output for JSON lines."""
    if lines:
        yield sys.stdout
        return
    temporary = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        try:
            with open(temporary, "w", encoding="utf-8", newline="") as stream:
                yield stream
            os.replace(temporary, place)
        except OSError as error:
            if isinstance(error, FileError):
                raise
            got = error.strerror or str(error)
            raise FileError(f"{place} must be writable", got, "choose another file with --out") from error
    finally:
        with suppress(OSError):  # a name that is too long cannot be removed either
            temporary.unlink(missing_ok=True)


def write(stream: TextIO, numbers: list[Any], table: dict[str, np.ndarray], head: Any, lines: bool) -> Any:
    rows = zip(numbers, *table.values(), strict=True)
    if lines:
        for row in rows:
            stream.write(
                json.dumps(dict(zip(("row", *table), map(plain, row), strict=True)), ensure_ascii=False) + "\n"
            )
        return head
    writer = csv.writer(stream, lineterminator="\n")
    if head is None:
        writer.writerow([safe(name) for name in ("row", *table)])
    writer.writerows([cell(value) for value in row] for row in rows)
    return True


def plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def cell(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else safe(str(value))


def safe(text: str) -> str:
    """A spreadsheet takes text that begins so for a formula."""
    return f"'{text}" if text[:1] in "=+-@\t" and text[:1] else text
