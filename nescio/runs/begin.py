"""Begins a run: reads the data, chooses what was left open, checks that all of it goes together, and writes the folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from nescio import expressions
from nescio.data.source import source
from nescio.errors import FileError
from nescio.likelihoods import Bernoulli
from nescio.runs.build import build
from nescio.runs.choose import Choice, choose_likelihood, choose_method, choose_net, choose_prior
from nescio.runs.config import NAME, Config
from nescio.runs.folder import Run, digest, environment, finished, write_text
from nescio.runs.given import Given, read_given
from nescio.runs.inputs import NAME as INPUTS
from nescio.runs.inputs import Inputs
from nescio.target import check

MOST_COPIED = 64 << 20  # bytes of data that are kept in the folder


@final
@dataclass(frozen=True)
class Wishes:
    """Expressions that the user gave; None is chosen from the data."""

    net: str | None = None
    prior: str | None = None
    likelihood: str | None = None
    method: str | None = None


def begin(
    data: str | os.PathLike[str],
    target: Sequence[str] = (),
    *,
    out: str | os.PathLike[str],
    wishes: Wishes = Wishes(),
    seed: int = 0,
    test: float = 0.1,
    as_classes: bool = False,
    drop_missing_targets: bool = False,
    ignore: Sequence[str] = (),
) -> tuple[Run, Given]:
    """The run, not yet fitted, and its data."""
    place = Path(out)
    if (place / NAME).exists():
        more = (
            f"use it: nescio predict {place} NEW.csv"
            if finished(place)
            else f"go on with it: nescio fit --resume {place}, or delete it"
        )
        remedy = f"choose another --out, or {more}"
        raise FileError("a run needs a folder of its own", f"{place}, which holds a run", remedy)
    given = read_given(
        data, target, test=test, seed=seed, as_classes=as_classes, drop_missing_targets=drop_missing_targets, ignore=ignore
    )  # fmt: skip
    inputs = Inputs.of(given)
    texts, reasons = chosen(given, inputs, wishes, seed)
    notes = (*given.notes, *reasons)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        got = error.strerror or "an error"
        raise FileError(f"{place} must be a folder", got, "choose another folder with --out") from error
    where, copied = kept(Path(data), place)
    config = Config(
        where, copied, digest(Path(data)), given.target, *texts, seed=seed, test=test,
        as_classes=as_classes, drop_missing_targets=drop_missing_targets, ignore=tuple(ignore),
    )  # fmt: skip
    write_text(place / INPUTS, inputs.to_json())
    write_text(place / "environment.json", json.dumps(environment(), indent=1) + "\n")
    write_text(place / "notes.json", json.dumps(list(notes), indent=1, ensure_ascii=False) + "\n")
    write_text(place / NAME, config.to_json())  # last: with it the folder is a run
    return Run(place, config, inputs, notes), given


def chosen(given: Given, inputs: Inputs, wishes: Wishes, seed: int) -> tuple[tuple[str, str, str, str], list[str]]:
    """Net, prior, likelihood and method in their canonical form, and what to say about those that were chosen."""
    reasons: list[str] = []

    def take(what: str, wish: str | None, choice: Choice) -> str:
        if wish is None:
            reasons.append(f"{what}: {choice.text} ({choice.why}); choose another with --{what}")
        return choice.text if wish is None else wish

    likelihood = expressions.spell(
        expressions.likelihood(take("likelihood", wishes.likelihood, choose_likelihood(given)))
    )
    net = take("net", wishes.net, choose_net(given))
    prior = expressions.spell(expressions.prior(take("prior", wishes.prior, choose_prior())))
    model = build(inputs, net, prior, likelihood, seed)
    binary = isinstance(model.likelihood, Bernoulli)
    check(model, source((given.x, inputs.labels(given.y, binary))))  # what does not fit says so now
    method = wishes.method
    if method is None:
        choice = choose_method(model, given)
        method = take("method", None, choice)
    method = expressions.spell(expressions.method(method))
    return (net, prior, likelihood, method), reasons


def kept(data: Path, place: Path) -> tuple[str, bool]:
    """The data in the folder, so that the run can be repeated from it alone; large ones and folders stay where they are."""
    if data.is_dir() or data.stat().st_size > MOST_COPIED:
        return str(data.resolve()), False
    name = f"data{data.suffix.lower()}"
    try:
        shutil.copyfile(data, place / name)
    except OSError as error:
        raise FileError(
            f"the data must be copied into {place}", error.strerror or "an error", "free some space"
        ) from error
    return name, True
