"""`nescio compare` and `nescio bench`: methods side by side, on the user's data or on a suite with fixed splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from rich.console import Console

from nescio import expressions
from nescio.cli.named import data_and_target
from nescio.cli.voice import Voice
from nescio.comparison import Comparison, Fit, Task, compare_tasks, standard_methods, suite
from nescio.errors import FileError, InputError
from nescio.infer.method import Method
from nescio.likelihoods import Bernoulli
from nescio.runs import Wishes
from nescio.runs.begin import chosen
from nescio.runs.build import build
from nescio.runs.folder import write_text
from nescio.runs.given import read_given
from nescio.runs.inputs import Inputs


@final
@dataclass(frozen=True)
class Limits:
    """`seconds`: of the whole table; `passes`: over the data, of each method."""

    seconds: float | None = None
    passes: float | None = None


def compare(
    voice: Voice,
    data: str,
    target: list[str],
    wishes: Wishes,
    methods: list[str],
    reference: str | None,
    splits: int,
    seed: int,
    out: Path | None,
    classes: bool,
    ignore: list[str],
    limits: Limits,
) -> None:
    """Every method on the same splits, each a tenth held out anew."""
    if splits < 1:
        raise InputError("there must be a split", str(splits), "use --splits 3")
    wanted = named(methods)
    path, columns = data_and_target(data, target)
    tasks = []
    for split in range(seed, seed + splits):
        given = read_given(path, columns, seed=split, as_classes=classes, ignore=ignore)
        inputs = Inputs.of(given)
        (net, prior, likelihood, default), reasons = chosen(given, inputs, wishes, split)
        if split == seed:
            for note in (*given.notes, *(r for r in reasons if not r.startswith("method"))):
                voice.say(note)
            wanted = wanted or {
                default: expressions.method(default),
                "5 * MAP(hold_out=0.1)": expressions.method("5 * MAP(hold_out=0.1)"),
            }
        model = build(inputs, net, prior, likelihood, split)
        binary = isinstance(model.likelihood, Bernoulli)
        test = (given.test_x, inputs.labels(given.test_y, binary))
        tasks.append(Task(Path(data).stem, model, (given.x, inputs.labels(given.y, binary)), test, split))
    judge = None if reference is None else expressions.method(reference)
    ended(voice, tasks, wanted, judge, (seed,), out, limits)


def bench(
    voice: Voice,
    name: str,
    methods: list[str],
    reference: str | None,
    splits: int | None,
    seed: int,
    quick: bool,
    out: Path | None,
    limits: Limits,
) -> None:
    if splits is not None and splits < 1:
        raise InputError("there must be a split", str(splits), "use --splits 3")
    wanted: Mapping[str, Fit] = named(methods) or standard_methods(quick)
    tasks = suite(name, 1 if quick and splits is None else splits)
    judge = None if reference is None else expressions.method(reference)
    ended(voice, tasks, wanted, judge, (seed,), out, limits)


def named(methods: list[str]) -> dict[str, Method]:
    return {text: expressions.method(text) for text in methods}


def ended(
    voice: Voice,
    tasks: list[Task],
    methods: Mapping[str, Fit],
    reference: Method | None,
    seeds: tuple[int, ...],
    out: Path | None,
    limits: Limits,
) -> None:
    with status() as tell:
        table = compare_tasks(
            tasks, methods, reference=reference, seeds=seeds, budget=limits.passes, seconds=limits.seconds, progress=tell
        )  # fmt: skip
    if reference is not None:
        table = replace(table, reference=expressions.spell(reference))
    voice.table(*table.table())
    if table.left:
        voice.say(
            f"the budget of {limits.seconds:g} s is spent: {table.left} of {table.left + len(table.rows)} fits were not begun"
        )
    if out is not None:
        for path in kept(table, out):
            voice.say(f"written: {path}")
    if voice.as_json:
        print(table.to_json(), end="")


def kept(table: Comparison, out: Path) -> list[Path]:
    """Into the folder of a run, where the report finds it, or into any other."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{out} must be a folder", error.strerror or "an error", "choose another --out") from error
    write_text(out / "comparison.json", table.to_json())
    write_text(out / "comparison.html", table.html())
    return [out / "comparison.json", out / "comparison.html"]


@contextmanager
def status() -> Iterator[Callable[[str, int, int], None]]:
    console = Console(stderr=True)
    with console.status("") as spinning:

        def tell(what: str, done: int, total: int) -> None:
            spinning.update(f"{done + 1} of {total}: {what}")

        yield tell
