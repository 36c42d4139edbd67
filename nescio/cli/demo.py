"""`nescio demo`: the main job on bundled real data. A deep ensemble predicts the strength of concrete, and says how sure it is."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from nescio.cli.bar import bar
from nescio.data import Scaling, standardize, toys, uci
from nescio.errors import FileError
from nescio.evaluation import coverage, nll, rmse
from nescio.infer import MAP, fit
from nescio.infer.method import Method
from nescio.laws import Learned, Normal
from nescio.likelihoods import Gaussian, Heteroscedastic
from nescio.model import Model
from nescio.nets import mlp
from nescio.posterior import Posterior
from nescio.report.figures.bands import bands_data, draw_bands
from nescio.report.figures.intervals import draw_intervals, intervals_data
from nescio.report.style import save


def run(out: Path, seed: int, quick: bool) -> None:
    console = Console()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"{out} must be a folder", error.strerror or "an error", "choose another folder with --out"
        ) from error
    concrete(out, seed, quick, console)
    gap(out, seed, quick, console)


def concrete(out: Path, seed: int, quick: bool, console: Console) -> None:
    """Eight ingredients and ages, one strength: 927 mixtures to learn from, 103 to be judged by."""
    train, test = uci("concrete").split(seed=seed, test=0.1)
    units = Scaling.of(train.y)
    net = nn.Sequential(standardize(Scaling.of(train.x)), mlp(train.x.shape[1], 50, 50, 2)).float()
    model = Model(net, Normal(0.0, 1.0), Heteroscedastic(loc=units.loc.float(), scale=units.scale.float()))
    member = MAP(epochs=20 if quick else 300, hold_out=0.1, patience=40)
    methods: dict[str, Method] = {"one network": 1 * member, "ensemble of 10": 10 * member}
    table = Table(
        "concrete strength [MPa]", "RMSE", "NLL", "90% interval holds", "epistemic sd", "aleatoric sd", box=None
    )
    posterior: Posterior | None = None
    for name, method in methods.items():
        with bar(f"concrete, {name}") as progress:
            posterior = fit(model, (train.x, train.y), method, seed=seed, progress=progress)
        predictive = posterior.predict(test.x)
        scores = (rmse(predictive, test.y), nll(predictive, test.y), coverage(predictive, test.y))
        parts = (predictive.epistemic.mean().sqrt().item(), predictive.aleatoric.mean().sqrt().item())
        table.add_row(
            name, f"{scores[0]:.2f}", f"{scores[1]:.2f}", f"{scores[2]:.0%}", f"{parts[0]:.2f}", f"{parts[1]:.2f}"
        )
    assert posterior is not None
    console.print(table)
    numbers = intervals_data(posterior.predict(test.x), test.y)
    figure = draw_intervals(numbers, title="Concrete: 103 mixtures the ensemble has never seen", unit="strength [MPa]")
    alt = (
        "Predictions with 90% intervals for held-out concrete mixtures, and how much of each is epistemic or aleatoric."
    )
    save(figure, out / "concrete.svg", alt=alt, values=numbers, source="UCI concrete strength", seed=seed)
    console.print(f"picture: {out / 'concrete.svg'}")


def gap(out: Path, seed: int, quick: bool, console: Console) -> None:
    """One input and a hole in the data: where there are no data, the members of the ensemble part."""
    x, y = toys.gap(seed=seed)
    model = Model(mlp(1, 50, 50, 1, activation=nn.SiLU), Normal(0.0, 3.0), Gaussian(Learned(0.3)))
    with bar("one dimension, with a gap") as progress:
        posterior = fit(model, (x, y), 20 * MAP(epochs=50 if quick else 400), seed=seed, progress=progress)
    margin = 0.3 * float(x.max() - x.min())
    grid = torch.linspace(float(x.min()) - margin, float(x.max()) + margin, 200)[:, None]
    numbers = bands_data(grid, posterior.predict(grid))
    figure = draw_bands(numbers, x, y, title="Where there are no data, it says so")
    alt = "A curve through two clusters of points; the epistemic band widens in the gap between them and outside."
    save(figure, out / "gap.svg", alt=alt, values=numbers, source="toy data", seed=seed)
    console.print(f"picture: {out / 'gap.svg'}")
