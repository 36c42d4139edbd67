"""Scalars of a fit for TensorBoard (or any other logger), through the one progress callback. Needs `pip install tensorboard`.

python examples/tensorboard_scalars.py && tensorboard --logdir build/tensorboard
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

from nescio import Model, fit
from nescio.infer import HMC, MAP, Progress
from nescio.laws import Learned, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp


def logged(writer: SummaryWriter) -> Callable[[Progress], None]:
    """A callback for `fit(progress=...)`: every number of every stage, against the part that is done."""

    def tell(report: Progress) -> None:
        for name, value in report.numbers.items():
            writer.add_scalar(f"{report.method}/{name}", value, report.done)

    return tell


def main(quick: bool = False) -> int:
    x = torch.linspace(-2, 2, 50)[:, None]
    model = Model(mlp(1, 10, 1), Normal(0, 1), Gaussian(Learned(0.3)))
    method = 2 * (
        MAP(epochs=5 if quick else 200) >> HMC(draws=5 if quick else 500, warmup=5 if quick else 200, leapfrog=5)
    )
    folder = Path(tempfile.mkdtemp()) if quick else Path("build/tensorboard")
    with SummaryWriter(str(folder)) as writer:
        fit(model, (x, x.sin()), method, progress=logged(writer))
    return len(list(folder.glob("events*")))


if __name__ == "__main__":
    main()
