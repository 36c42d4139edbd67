"""Networks, priors, data and training of the compression tables."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nescio import Model
from nescio.data import images, mnist
from nescio.families import Family, MeanField, VariationalDropout
from nescio.infer import VI
from nescio.infer.elbo_graph import RecordedELBO
from nescio.laws import HalfCauchy, HalfLogUniform, Law, LogUniform, Normal
from nescio.likelihoods import Categorical
from nescio.nets import lenet5, lenet_300_100
from nescio.noise import Noise
from nescio.posterior import Variational

NETS = ("lenet-300-100", "lenet-5-caffe", "vgg")
# learning rates. That of the horseshoe is the better of 2e-3 and 1e-2 by the bound of LeNet-300-100 after 20 epochs, seed 0:
# for the others only this one was tried
KINDS = {"sparse-vd": 2e-3, "normal-jeffreys": 2e-3, "horseshoe": 1e-2}
HELD = 5000  # training images that choose thresholds


class Split(NamedTuple):
    x: Tensor
    y: Tensor

    def to(self, device: str) -> Split:
        return Split(self.x.to(device), self.y.to(device))


class Data(NamedTuple):
    train: Split
    held: Split
    test: Split

    def to(self, device: str) -> Data:
        return Data(*(part.to(device) for part in self))


def vgg(unit: int = 64, classes: int = 10) -> nn.Sequential:
    """Six 3x3 convolutions with batch norms and two linear layers: the papers' VGG at a size for 10,000 images."""
    layers: list[nn.Module] = []
    channels = 3
    for times, pool in ((1, False), (1, True), (2, False), (2, True), (4, False), (4, True)):
        width = times * unit
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pool else []
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * unit, 4 * unit), nn.ReLU(), nn.Linear(4 * unit, classes))


def network(name: str, seed: int, quick: bool) -> nn.Module:
    """Quick ones are of toy size."""
    with Noise(seed).at("start").scope():
        if name == "vgg":
            return vgg(2 if quick else 64)
        if quick:
            filters = [nn.Conv2d(1, 2, 5), nn.MaxPool2d(2), nn.Conv2d(2, 3, 5), nn.MaxPool2d(2)]
            flat = 784 if name == "lenet-300-100" else 48
            rest = [nn.Flatten(), nn.Linear(flat, 6), nn.ReLU(), nn.Linear(6, 10)]
            return nn.Sequential(*(rest if name == "lenet-300-100" else filters + rest))
        return lenet_300_100() if name == "lenet-300-100" else lenet5()


def prior(net: nn.Module, kind: str) -> dict[str, Law]:
    """Groups as in the papers: the inputs of linear maps, the filters of convolutions with their biases; other biases and norms N(0, 1)."""
    if kind == "sparse-vd":
        weights = {
            f"{path}.weight": LogUniform() for path, m in net.named_modules() if isinstance(m, (nn.Linear, nn.Conv2d))
        }
        return {**weights, "*": Normal(0.0, 1.0)}
    found: dict[str, Law] = {}
    for path, module in net.named_modules():
        scale = HalfLogUniform() if kind == "normal-jeffreys" else HalfCauchy(HalfCauchy(1e-5).per("net"))
        if isinstance(module, nn.Conv2d):
            found[f"{path}.*"] = Normal(0.0, scale.per("unit"))
        elif isinstance(module, nn.Linear):
            found[f"{path}.weight"] = Normal(0.0, scale.per("input"))
    return {**found, "*": Normal(0.0, 1.0)}


def family(kind: str) -> Family:
    return VariationalDropout(0.1) if kind == "sparse-vd" else MeanField(sd=0.01, local_convolutions=True)


@cache
def data(name: str, quick: bool) -> Data:
    """MNIST in [-1, 1] as in the papers, CIFAR-10's subset standardised; the last training images choose thresholds."""
    if name == "vgg":
        found = images("cifar10_subset")
        x, y, xt, yt = (torch.from_numpy(found[k]) for k in ("x_train", "y_train", "x_test", "y_test"))
        x, xt = (v.float().div(255).sub(0.473).div(0.251) for v in (x, xt))
        x, xt = (v if v.shape[1] == 3 else v.movedim(-1, 1) if v.shape[-1] == 3 else v.movedim(0, 1) for v in (x, xt))
        held = 1000
    else:
        x, y, xt, yt = mnist()
        x, xt = (v.float().div(127.5).sub(1)[:, None] for v in (x, xt))
        held = HELD
    y, yt = y.long(), yt.long()
    if quick:
        x, y, xt, yt, held = x[:300], y[:300], xt[:200], yt[:200], 100
    return Data(Split(x[:-held], y[:-held]), Split(x[-held:], y[-held:]), Split(xt, yt))


def trained(job: dict[str, Any], given: Data, device: str) -> tuple[Variational, float]:
    """Adam with a cosine to zero, the divergence faded in over the first `warmup` of the run. The ELBO of the last epoch goes along."""
    net = network(job["net"], job["seed"], job["quick"])
    model = Model(net, prior(net, job["kind"]), Categorical()).to(device)
    posterior, loss = VI(family(job["kind"])).objective(model, given.train, seed=job["seed"])
    adam = torch.optim.Adam(list(loss.parameters()), lr=job["lr"], fused=True)
    noise = Noise(job["seed"], device=torch.device(device))
    estimate, elbo = RecordedELBO(loss).estimate if loss.q.rest.is_cuda else loss.estimate, math.nan
    for epoch in range(job["epochs"]):
        batches = noise.at("order", epoch).permutations(1, len(given.train.y))[0].split(job["batch"])
        total = torch.zeros((), dtype=torch.float64, device=device)
        with noise.at("epoch", epoch).scope():
            for i, rows in enumerate(batches):
                part = (epoch + i / len(batches)) / job["epochs"]
                for group in adam.param_groups:
                    group["lr"] = job["lr"] * 0.5 * (1 + math.cos(math.pi * part))
                adam.zero_grad()
                total += estimate(given.train.x[rows], given.train.y[rows], min(1.0, part / job["warmup"]))
                adam.step()
        elbo = float(total) / len(batches)
        if not math.isfinite(elbo):
            raise SystemExit(f"the bound is {elbo} after epoch {epoch} of {job}")
    return posterior, elbo
