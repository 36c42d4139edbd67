"""Commands that show: the catalogue, the data sets, the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nescio.cli.app import Json, Seed, app, data_app, interruptible


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="methods, families, laws, ... or the name of an entry")] = None,
    json: Json = False,
) -> None:
    """The catalogue: what --method, --prior, --likelihood and --net may name, with one line each."""
    with interruptible():
        from nescio.cli.catalogue import methods
        from nescio.cli.voice import Voice

        methods(Voice(json), name)


@data_app.command("list")
def data_list(json: Json = False) -> None:
    """The data sets that nescio knows by name, and whether they are here."""
    with interruptible():
        from nescio.cli.datasets import listed
        from nescio.cli.voice import Voice

        listed(Voice(json))


@data_app.command("add")
def data_add(file: Annotated[Path, typer.Argument(help="such as mnist.npz")], json: Json = False) -> None:
    """Copy a known file into the data folder, its checksum verified."""
    with interruptible():
        from nescio.cli.datasets import add
        from nescio.cli.voice import Voice

        add(Voice(json), file)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="folder of the run")] = Path("build/demo"),
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="a few epochs only")] = False,
) -> None:
    """The bundled concrete table: fit with the default method, predict, report."""
    with interruptible():
        from nescio.cli.demo import demo

        demo(out, seed, quick)
