"""Commands that compare: compare, bench, reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nescio.cli.app import Json, Seed, app, interruptible

Methods = Annotated[list[str] | None, typer.Option("--method", "--methods", help="an expression; again for each")]
Reference = Annotated[str | None, typer.Option(help="what to measure agreement with, such as '4 * HMC()'")]
Budget = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="begin no further split after so long; all methods finish theirs"),
]
Passes = Annotated[
    float | None,
    typer.Option(help="the most passes over the data that a method may plan; one that plans more is refused"),
]
Out = Annotated[
    Path | None, typer.Option(help="folder for comparison.json and .html; that of a run adds them to its report")
]


@app.command()
def compare(
    data: Annotated[str, typer.Argument(help="as for fit")],
    target: Annotated[list[str] | None, typer.Option(help="the column to predict")] = None,
    method: Methods = None,
    reference: Reference = None,
    net: Annotated[str | None, typer.Option(help="as for fit")] = None,
    prior: Annotated[str | None, typer.Option(help="as for fit")] = None,
    likelihood: Annotated[str | None, typer.Option(help="as for fit")] = None,
    splits: Annotated[int, typer.Option(help="how many times a tenth is held out anew")] = 3,
    classes: Annotated[bool, typer.Option("--classes", help="whole numbers of the target are classes")] = False,
    ignore: Annotated[list[str] | None, typer.Option(help="a column to leave out")] = None,
    budget: Budget = None,
    passes: Passes = None,
    out: Out = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Methods side by side on your data: the same network, prior, likelihood and splits for all of them."""
    with interruptible():
        from nescio.cli.compare import Limits, compare
        from nescio.cli.named import wished
        from nescio.cli.voice import Voice

        wishes = wished(net, prior, likelihood)
        compare(
            Voice(json), data, target or [], wishes, method or [], reference, splits, seed, out, classes, ignore or [],
            Limits(budget, passes),
        )  # fmt: skip


@app.command()
def bench(
    suite: Annotated[str, typer.Argument(help="toy, uci, gap, digits or mnist")],
    method: Methods = None,
    reference: Reference = None,
    splits: Annotated[int | None, typer.Option(help="only the first so many of each data set")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="one split, a few epochs: shows that it works")] = False,
    budget: Budget = None,
    passes: Passes = None,
    out: Out = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """The fair benchmark: suites with fixed splits."""
    with interruptible():
        from nescio.cli.compare import Limits, bench
        from nescio.cli.voice import Voice

        bench(Voice(json), suite, method or [], reference, splits, seed, quick, out, Limits(budget, passes))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def reproduce(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="of a script or of a result; none lists them")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="in seconds, to show that it works")] = False,
    show: Annotated[bool, typer.Option("--show", help="what was made, where a script has the same name")] = False,
    json: Json = False,
) -> None:
    """Published tables and figures beside ours: 'published | ours | within?'. Further options go to the script."""
    with interruptible():
        from nescio.cli.reproduce import reproduce
        from nescio.cli.voice import Voice

        code = reproduce(Voice(json), name, quick, show, list(context.args))
    raise typer.Exit(code)
