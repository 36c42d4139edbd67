"""A progress bar on the terminal, one stage of a method after the other, with the time that is left; silence where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nescio.infer.method import Progress as Report


@contextmanager
def bar(label: str) -> Iterator[Callable[[Report], None]]:
    """A callback for `fit(progress=...)`."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        TextColumn("left  {task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=1000, note="")
        stage = ""

        def tell(report: Report) -> None:
            nonlocal stage
            if report.method != stage:  # of a >> b the next one: what is left is counted anew
                stage = report.method
                progress.reset(task, description=f"{label}: {stage}", note="")
            told = [f"{name} {value:.3f}" for name, value in report.numbers.items() if value == value]
            note = "  ".join(told[:2])  # more would push the time off the line
            progress.update(task, completed=report.done, note=note)

        yield tell
