"""The measuring process of training steps: it is given one JSON argument and prints one JSON line.

    {"library": ..., "widths": [784, 400, 400, 10], "batch": 128, "steps": 20, "blocks": 10, "threads": 1, "seed": 0, "launched": ...}

In turn a block of steps of a plain network and a block of steps of the library, in this process, on the same rows, both with torch's
fused Adam: what disturbs a machine disturbs both. Seconds are those of the processor: waiting for it does not count. Runs in nescio's
environment or in the peers'; each imports what it measures.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import torch
from child import confine
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

Step = Callable[[int], float]  # the number of the step -> the loss
SD, ROWS, PRIOR = 0.05, 6400, 0.1  # standard deviations at the start; rows of the data; the prior's


class Task:
    """Random rows of the shape of MNIST: a step costs the same whatever they show."""

    def __init__(self, spec: dict[str, Any]) -> None:
        torch.default_generator.manual_seed(spec["seed"])
        self.widths: list[int] = spec["widths"]
        self.batch: int = spec["batch"]
        self.x, self.y = torch.randn(ROWS, self.widths[0]), torch.randint(0, self.widths[-1], (ROWS,))

    def rows(self, i: int) -> tuple[Tensor, Tensor]:
        start = i * self.batch % (ROWS - self.batch + 1)
        return self.x[start : start + self.batch], self.y[start : start + self.batch]

    def net(self, linear: Callable[[int, int], nn.Module] = nn.Linear) -> nn.Sequential:
        layers = [layer for a, b in pairwise(self.widths) for layer in (linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers[:-1])

    def training(self, net: nn.Module, divergence: Callable[[], Tensor] | None = None) -> Step:
        """Mean loss per observation, and 1 / N of the divergence."""
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

        def step(i: int) -> float:
            optimizer.zero_grad()
            x, y = self.rows(i)
            loss = F.cross_entropy(net(x), y)
            if divergence is not None:
                loss = loss + divergence() / ROWS
            loss.backward()
            optimizer.step()
            return float(loss.detach())

        return step


class Drawn(nn.Module):
    """Bayes by Backprop as it is usually written: weights drawn once a step, torch.distributions for the divergence."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        start = nn.Linear(inputs, outputs)
        self.loc = nn.ParameterList([start.weight.detach().clone(), start.bias.detach().clone()])
        rho = math.log(math.expm1(SD))
        self.rho = nn.ParameterList([torch.full_like(p, rho) for p in self.loc])

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = (m + F.softplus(r) * torch.randn_like(m) for m, r in zip(self.loc, self.rho, strict=True))
        return F.linear(x, weight, bias)

    def divergence(self) -> Tensor:
        pairs = zip(self.loc, self.rho, strict=True)
        each = [kl_divergence(Normal(m, F.softplus(r), False), Normal(0.0, PRIOR, False)).sum() for m, r in pairs]
        return torch.stack(each).sum()


class Local(Drawn):
    """The same with the outputs drawn, by their own law."""

    def forward(self, x: Tensor) -> Tensor:
        (weight, bias), (sd, bias_sd) = self.loc, (F.softplus(r) for r in self.rho)
        mean, variance = F.linear(x, weight, bias), F.linear(x.square(), sd.square(), bias_sd.square())
        return mean + variance.sqrt() * torch.randn_like(mean)


def by_hand(task: Task, layer: type[Drawn]) -> Step:
    net = task.net(layer)
    return task.training(net, lambda: torch.stack([m.divergence() for m in net if isinstance(m, Drawn)]).sum())


def by_nescio(task: Task, compiled: bool) -> Step:
    """What `fit` does at every step, the choice of rows and the trace included."""
    from dataclasses import replace

    from nescio import Model
    from nescio.data.source import source
    from nescio.families import MeanField
    from nescio.infer import VI
    from nescio.infer.begin import from_network
    from nescio.infer.method import Start
    from nescio.laws import Normal as Law
    from nescio.likelihoods import Categorical
    from nescio.noise import Noise
    from nescio.target import Target

    method, model = VI(MeanField(sd=SD), lr=1e-3), Model(task.net(), Law(0.0, PRIOR), Categorical())
    ends = from_network(model, Start(), Noise(0))
    target = Target(model, source((task.x, task.y)), centred=True).free(method.moves(model.prior), ends.theta)
    state = method.init(target, ends, Noise(0))
    if compiled:
        target = replace(target, code={})

    def step(i: int) -> float:
        nonlocal state
        start = i * task.batch % (ROWS - task.batch + 1)
        rows = torch.arange(start, start + task.batch)[None]
        state, _ = method.step(target, state, target.batch(rows)._replace(part=0.5, closes=False), Noise(0, (i,)))
        return -float(state.epoch[1]) / ROWS

    step(0)
    if compiled and (note := next(iter(target.code.values())).note):  # type: ignore[union-attr]
        raise RuntimeError(note)
    return step


def by_bayesian_torch(task: Task, flipout: bool) -> Step:
    from bayesian_torch.layers import LinearFlipout, LinearReparameterization
    from bayesian_torch.models.dnn_to_bnn import get_kl_loss

    kind, rho = LinearFlipout if flipout else LinearReparameterization, math.log(math.expm1(SD))

    def layer(a: int, b: int) -> nn.Module:
        made = kind(a, b, prior_mean=0.0, prior_variance=PRIOR, posterior_mu_init=0.0, posterior_rho_init=rho)
        made.dnn_to_bnn_flag = True  # forward returns the output alone
        return made

    net = task.net(layer)
    return task.training(net, lambda: get_kl_loss(net))


def by_torchbnn(task: Task) -> Step:
    import torchbnn

    net = task.net(lambda a, b: torchbnn.BayesLinear(prior_mu=0.0, prior_sigma=PRIOR, in_features=a, out_features=b))
    kl = torchbnn.BKLLoss(reduction="sum", last_layer_only=False)
    return task.training(net, lambda: kl(net).sum())


def by_blitz(task: Task) -> Step:
    from blitz.losses import kl_divergence_from_nn
    from blitz.modules import BayesianLinear

    net = task.net(lambda a, b: BayesianLinear(a, b, prior_sigma_1=PRIOR, prior_pi=1.0))
    return task.training(net, lambda: kl_divergence_from_nn(net))


LIBRARIES: dict[str, tuple[Callable[[Task], Step], Sequence[str]]] = {
    "nescio": (lambda task: by_nescio(task, True), ()),
    "nescio, not compiled": (lambda task: by_nescio(task, False), ()),
    "by hand, weights drawn": (lambda task: by_hand(task, Drawn), ()),
    "by hand, outputs drawn": (lambda task: by_hand(task, Local), ()),
    "bayesian-torch": (lambda task: by_bayesian_torch(task, False), ("bayesian-torch",)),
    "bayesian-torch flipout": (lambda task: by_bayesian_torch(task, True), ("bayesian-torch",)),
    "torchbnn": (by_torchbnn, ("torchbnn",)),
    "BLiTZ": (by_blitz, ("blitz-bayesian-pytorch",)),
}


def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    confine(spec["threads"])
    torch.set_num_threads(spec["threads"])
    task = Task(spec)
    build, packages = LIBRARIES[spec["library"]]
    steps = {"plain": task.training(task.net()), "library": build(task)}
    losses: dict[str, list[float]] = {name: [step(i) for i in range(3)] for name, step in steps.items()}  # warm
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(spec["blocks"]):
        for name, step in steps.items():
            step(0)
            began = time.process_time()
            losses[name] += [step(i) for i in range(spec["steps"])]
            seconds[name].append((time.process_time() - began) / spec["steps"])
    finite = all(math.isfinite(x) for each in losses.values() for x in each)
    versions = {name: version(name) for name in packages}
    print(json.dumps({**seconds, "finite": finite, "versions": versions, "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
