"""The command line. Heavy imports live inside the commands, so that help is instant.

Exit codes: 0 fine, 1 our bug, 2 the input's fault (one line, no traceback), 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def root() -> None:
    """What a network knows, what it does not, and proof that the answer can be trusted."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="folder for the pictures")] = Path("build/demo"),
    seed: Annotated[int, typer.Option(help="the same seed gives the same numbers")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="a few epochs only")] = False,
) -> None:
    """A deep ensemble on bundled real data: a table, and two pictures of what it knows and what it does not."""
    from nescio.cli.demo import run

    with interruptible():
        run(out, seed, quick)


@app.command()
def datasets() -> None:
    """The data sets that nescio knows by name, and whether they are here."""
    from nescio.cli.datasets import run

    with interruptible():
        run()


def main() -> None:
    from nescio.errors import NescioError

    try:
        app()
    except NescioError as error:
        print(f"nescio: {error}", file=sys.stderr)
        sys.exit(2)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside a command, where typer has not yet swallowed the interrupt."""
    try:
        yield
    except KeyboardInterrupt:
        print("nescio: interrupted", file=sys.stderr)
        raise typer.Exit(130) from None


if __name__ == "__main__":
    main()
