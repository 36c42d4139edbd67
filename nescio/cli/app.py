"""The one Typer application, and how commands end: 0 fine, 1 our bug, 2 the input's fault (one line), 130 interrupted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from nescio.version import __version__

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
data_app = typer.Typer(no_args_is_help=True, help="Data sets that are known by name.")
app.add_typer(data_app, name="data")

Json = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
Seed = Annotated[int, typer.Option(help="the same seed gives the same numbers")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, ...")]


def version(wanted: bool) -> None:
    if wanted:
        print(f"nescio {__version__}")
        raise typer.Exit(0)


@app.callback()
def root(
    shown: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="which nescio this is")
    ] = False,
) -> None:
    """What a network knows, what it does not, and the evidence for how far to trust the answer."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside a command, where typer has not yet swallowed the interrupt."""
    try:
        yield
    except KeyboardInterrupt as stop:
        print("; ".join(("nescio: interrupted", *map(str, stop.args))), file=sys.stderr)
        raise typer.Exit(130) from None
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        sys.stderr.close()
        raise typer.Exit(0) from None
