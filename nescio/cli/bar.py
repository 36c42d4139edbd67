"""A progress bar on the terminal, one stage of a method after the other, with the time that is left; silence where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from nescio.infer.method import Progress as Report


@contextmanager
def bar(label: str) -> Iterator[Callable[[Report], None]]:
    """A callback for `fit(progress=...)`."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  {task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=1000, note="")
        stage = ""

        def tell(report: Report) -> None:
            nonlocal stage
            if report.method != stage:  # of a >> b the next one: what is left is counted anew
                stage = report.method
                progress.reset(task, description=f"{label}: {stage}", note="")
            note = "  ".join(f"{name} {value:.3f}" for name, value in report.numbers.items() if value == value)
            progress.update(task, completed=report.done, note=note)

        yield tell
