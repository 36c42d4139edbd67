"""`nescio fit`: from a file to a run folder; `--resume` goes on with one, `rerun` repeats one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from nescio.cli.bar import bar
from nescio.cli.named import data_and_target
from nescio.cli.voice import Voice, score
from nescio.errors import FileError, InputError, UnsupportedError
from nescio.infer.device import usable
from nescio.runs import Run, Wishes, begin, go, open_run
from nescio.runs.folder import FIT, POSTERIOR
from nescio.runs.given import Given

SMALL = 5000  # weights, and rows
TITLES = {
    "nll": "negative log likelihood (lower is better)",
    "rmse": "root mean squared error",
    "crps": "CRPS, a distance of prediction and truth",
    "coverage": "90% intervals hold",
    "accuracy": "accuracy",
    "brier": "Brier score (lower is better)",
    "ece": "calibration error",
}


def fit(
    voice: Voice,
    data: str | None,
    target: list[str],
    wishes: Wishes,
    out: Path | None,
    resume: Path | None,
    seed: int,
    test: float,
    classes: bool,
    drop_missing: bool,
    ignore: list[str],
    device: str | None,
) -> Run:
    if device is not None:
        usable(device)  # before anything is written
    if resume is not None:
        if data is not None:
            raise InputError("--resume goes on with a folder by itself", f"also DATA {data}", "leave DATA out")
        return resumed(voice, resume, device)
    if data is None:
        raise InputError(
            "there must be data to fit", "none", "write nescio fit DATA --target COLUMN, or --resume FOLDER"
        )
    path, columns = data_and_target(data, target)
    place = Path("runs") / Path(data).stem if out is None else out
    new = not place.exists()
    run, given = begin(
        path, columns, out=place, wishes=wishes, seed=seed, test=test, as_classes=classes, drop_missing_targets=drop_missing,
        ignore=ignore,
    )  # fmt: skip
    kind = f"{given.x.shape[1]} inputs" if given.x.dim() == 2 else f"images {'x'.join(map(str, given.x.shape[1:]))}"
    held = f", {given.held_out} more are held out to judge by" if given.held_out else ", none are held out"
    voice.say(f"{len(given.y)} rows with {kind} to learn {', '.join(given.target)} from{held}")
    for note in run.notes:
        voice.say(note)
    with cleared(run, new):
        return carried_out(voice, run, given, device)


def resumed(voice: Voice, folder: Path, device: str | None) -> Run:
    run = open_run(folder)
    if run.finished:
        raise FileError(
            "only what is unfinished can be resumed", f"{folder}, which is finished", "use it: nescio predict"
        )
    voice.say(f"going on with {run.config.method} in {folder}")
    return carried_out(voice, run, None, device)


def rerun(voice: Voice, folder: Path, out: Path, device: str | None) -> Run:
    """The same data and expressions again, from the folder alone."""
    if device is not None:
        usable(device)
    old = open_run(folder)
    config = old.config
    path, new = folder / config.data if config.copied else Path(config.data), not out.exists()
    old.given()  # the checksum must be right
    run, given = begin(
        path,
        config.target if old.inputs.encoding is not None else (),
        out=out,
        wishes=Wishes(config.net, config.prior, config.likelihood, config.method),
        seed=config.seed,
        test=config.test,
        as_classes=config.as_classes,
        drop_missing_targets=config.drop_missing_targets,
        ignore=config.ignore,
    )
    with cleared(run, new):
        return carried_out(voice, run, given, device)


@contextmanager
def cleared(run: Run, new: bool) -> Iterator[None]:
    """A method that does not go with the model leaves no folder behind that would stand in the way of the next try. What has been
    computed stays: a run may find after hours that its loss is no number."""
    try:
        yield
    except (InputError, UnsupportedError):
        if new and not any(run.folder.rglob("checkpoint-*")):
            shutil.rmtree(run.folder, ignore_errors=True)
        raise


def calm(run: Run) -> None:
    """Small problems in one thread, unless the user says otherwise: several gain little, and on a busy machine wait for one another."""
    weights = run.model().dim
    if weights <= SMALL and run.inputs.rows <= SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def carried_out(voice: Voice, run: Run, given: Given | None, device: str | None) -> Run:
    calm(run)
    try:
        with bar(run.folder.name) as progress:
            go(run, given, progress=progress, device=device)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(kept(run)) from None
    metrics = run.metrics()
    told(voice, metrics)
    voice.say(f"everything is in {run.folder}; next: nescio predict {run.folder} NEW.csv, nescio report {run.folder}")
    voice.end({"folder": str(run.folder), "config": {**vars(run.config)}, **metrics})
    return run


def kept(run: Run) -> str:
    """What an interrupt leaves behind."""
    more = f"go on with: nescio fit --resume {run.folder}"
    if (run.folder / POSTERIOR).is_file() and (run.folder / FIT).exists():
        info = run.metrics()
        return f"what was drawn so far is in {run.folder} and can be used ({info['held_out_rows']} rows scored); {more}"
    return f"nothing was drawn yet; {more}"


def told(voice: Voice, metrics: dict[str, Any]) -> None:
    if metrics["scores"]:
        rows = [(TITLES[name], score(entry, name)) for name, entry in metrics["scores"].items()]
        voice.table((f"on {metrics['held_out_rows']} rows that were held out", ""), rows)
    mixing = metrics["fit"].get("mixing")
    if mixing and mixing["problems"]:
        voice.say(f"note: the chains have not mixed ({mixing['problems'][0]}): read this as an ensemble")
    voice.say(f"fitted in {metrics['fit'].get('seconds', 0):.0f} s")
