"""Bayes by Backprop under a Lightning Trainer: the loss is a module, and its parameters are those of the approximation.

Lightning is not among nescio's extras; `pip install lightning` brings it. It moves modules to its accelerator by itself, but the loss
also knows the data (for their number) and the network: build the model where it is to be trained, `mlp(...).cuda()`, and Lightning will
find everything in its place.

    python examples/lightning_trainer.py [--quick]
"""

from __future__ import annotations

import argparse
import logging
import warnings

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from nescio import Model
from nescio.data import toys
from nescio.infer import VI
from nescio.infer.elbo import NegativeELBO
from nescio.infer.families import MeanField
from nescio.laws import Learned, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp


class Task(lightning.LightningModule):
    """Lightning asks for a step and an optimiser; nescio has the loss."""

    def __init__(self, loss: NegativeELBO) -> None:
        super().__init__()
        self.loss = loss

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        return self.loss(*batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.loss.parameters(), lr=1e-2)


def main(quick: bool) -> dict[str, float]:
    """Standard deviations of f on the data and in the gap between them."""
    lightning.seed_everything(0, verbose=False)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    data = TensorDataset(*toys.gap(200, 0.2))
    model = Model(mlp(1, 50, 1), Normal(0, 1), Gaussian(Learned(0.5)))
    posterior, loss = VI(MeanField()).objective(model, data)
    trainer = lightning.Trainer(
        max_epochs=5 if quick else 400,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's own, on loaders without workers and steps without logs
        trainer.fit(Task(loss), DataLoader(data, batch_size=32, shuffle=True))
    places = {"on the data": [-1.5, 1.5], "in the gap": [-0.2, 0.2], "far off": [-6.0, 6.0]}
    found = {
        name: float(posterior.predict(torch.tensor(x)[:, None]).epistemic.mean().sqrt()) for name, x in places.items()
    }
    for name, sd in found.items():
        print(f"sd of f {name:<12} {sd:.3f}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer epochs")
    main(parser.parse_args().quick)
