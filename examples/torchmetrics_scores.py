"""Predictives in torchmetrics, batch by batch: probabilities and means go in as they are, samples where a metric wants an ensemble.

torchmetrics is not among nescio's extras; `pip install torchmetrics` brings it. It takes what lies in [0, 1] for probabilities and anything
else for logits: give it `predictive.probabilities`, never outputs of the network.

    python examples/torchmetrics_scores.py [--quick]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanSquaredError, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassCalibrationError
from torchmetrics.regression import ContinuousRankedProbabilityScore

from nescio import Model, evaluation, fit
from nescio.infer import MAP
from nescio.laws import Learned, Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.nets import mlp


def rows(n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, a number and one of three classes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=generator)
    y = x[:, :1].sin() + 0.3 * torch.randn(n, 1, generator=generator)
    return x, y, (x + 0.5 * torch.randn(n, 2, generator=generator) > 0).sum(1)


def main(quick: bool = False) -> dict[str, tuple[float, float]]:
    method = 3 * MAP(epochs=5 if quick else 50)
    x, y, label = rows(300, 0)
    test_x, test_y, test_label = rows(300, 1)
    numbers = fit(Model(mlp(2, 20, 1), Normal(0, 1), Gaussian(Learned(0.5))), (x, y), method)
    classes = fit(Model(mlp(2, 20, 3), Normal(0, 1), Categorical()), (x, label), method)

    torch.manual_seed(0)
    error, ranked = MeanSquaredError(squared=False), ContinuousRankedProbabilityScore()
    labels = MetricCollection(
        {
            "accuracy": MulticlassAccuracy(3, average="micro"),
            "calibration error": MulticlassCalibrationError(3, n_bins=15),
            "AUROC": MulticlassAUROC(3),
        }
    )
    for some_x, some_y, some_label in DataLoader(TensorDataset(test_x, test_y, test_label), batch_size=64):
        predictive = numbers.predict(some_x)
        error.update(predictive.mean, some_y)
        ranked.update(predictive.sample(1000)[..., 0].T.contiguous(), some_y[:, 0])  # (points, samples)
        labels.update(classes.predict(some_x).probabilities, some_label)

    theirs = {"rmse": error.compute(), "crps": ranked.compute(), **labels.compute()}
    whole, sorts = numbers.predict(test_x), classes.predict(test_x)
    ours = {
        "rmse": evaluation.rmse(whole, test_y),
        "crps": float(evaluation.crps(whole, test_y).mean()),
        "accuracy": evaluation.accuracy(sorts, test_label),
        "calibration error": evaluation.ece(sorts, test_label),
    }
    for name, value in theirs.items():
        print(f"{name:18} torchmetrics {float(value):.4f}" + (f"   nescio {ours[name]:.4f}" if name in ours else ""))
    assert all(abs(float(theirs[name]) - ours[name]) < (0.01 if name == "crps" else 1e-5) for name in ours)
    return {name: (float(theirs[name]), ours[name]) for name in ours}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
