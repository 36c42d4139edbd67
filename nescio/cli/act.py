"""Commands that do the work: fit, rerun, predict, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nescio.cli.app import Device, Json, Seed, app, interruptible


@app.command()
def fit(
    data: Annotated[str | None, typer.Argument(
        help="a .csv, .tsv or .parquet table, .npz arrays, a folder of images, or a bundled table"
    )] = None,
    target: Annotated[list[str] | None, typer.Option(help="the column to predict; again for several numeric ones")] = None,
    net: Annotated[str | None, typer.Option(help="such as 'mlp(inputs, 50, 50, outputs, activation=Tanh)'")] = None,
    prior: Annotated[str | None, typer.Option(help="such as 'Normal(0, HalfCauchy(1.).per(\"input\"))'")] = None,
    likelihood: Annotated[str | None, typer.Option(help="such as 'Gaussian(Learned(1.))'; auto: by the target")] = None,
    method: Annotated[str | None, typer.Option(help="such as '8 * (MAP() >> MCLMC())'; auto: by the size")] = None,
    out: Annotated[Path | None, typer.Option(help="folder of the run; runs/NAME if left out")] = None,
    resume: Annotated[Path | None, typer.Option(help="go on with the run in this folder")] = None,
    test: Annotated[float, typer.Option(help="part of the rows that is held out to judge by; 0 for none")] = 0.1,
    classes: Annotated[bool, typer.Option("--classes", help="whole numbers of the target are classes")] = False,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="leave rows without a target out")] = False,
    ignore: Annotated[list[str] | None, typer.Option(help="a column to leave out, such as a number of the row")] = None,
    seed: Seed = 0,
    device: Device = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Fit a network to a table or to images; everything goes into one folder that predict, report and rerun take."""
    with interruptible():
        from nescio.cli.fit import fit
        from nescio.cli.named import wished
        from nescio.cli.voice import Voice

        wishes = wished(net, prior, likelihood, method)
        fit(
            Voice(json),
            data,
            target or [],
            wishes,
            out,
            resume,
            seed,
            test,
            classes,
            drop_missing,
            ignore or [],
            device,
        )


@app.command()
def rerun(
    folder: Annotated[Path, typer.Argument(help="folder of a run")],
    out: Annotated[Path, typer.Option(help="folder of the new run")],
    device: Device = None,
    json: Json = False,
) -> None:
    """The same run again, from its folder alone."""
    with interruptible():
        from nescio.cli.fit import rerun
        from nescio.cli.voice import Voice

        rerun(Voice(json), folder, out, device)


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(help="folder of a run")],
    data: Annotated[Path, typer.Argument(help="new rows: a table of any size, an .npz or a folder of images")],
    out: Annotated[Path | None, typer.Option(help="the .csv to write; NEW.predictions.csv if left out")] = None,
    level: Annotated[float, typer.Option(help="probability of the intervals")] = 0.9,
    risk: Annotated[float | None, typer.Option(help="say 'I do not know' rather than be wrong more often than this")] = None,
    within: Annotated[float | None, typer.Option(help="a numeric answer is right within this distance")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="JSON lines on standard output instead of a file")] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Mean, interval, epistemic and aleatoric part, or the probability of every class, for each new row."""
    with interruptible():
        from nescio.cli.predict import predict
        from nescio.cli.voice import Voice

        predict(Voice(json or lines), folder, data, out, level, risk, within, lines)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="folder of a run")],
    out: Annotated[Path | None, typer.Option(help="the .html to write; FOLDER/report.html if left out")] = None,
    json: Json = False,
) -> None:
    """What the model knows and what it does not, as one HTML file for a reader who is no statistician."""
    with interruptible():
        from nescio.cli.report import report
        from nescio.cli.voice import Voice

        report(Voice(json), folder, out)
