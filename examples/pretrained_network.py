"""A network that was trained long ago, made Bayesian in five lines: Laplace's approximation of its last layer, without training it again.

python examples/pretrained_network.py
"""

from __future__ import annotations

import torch
from torch import nn

from nescio import Model, fit
from nescio.infer import Laplace
from nescio.infer.curvature import full
from nescio.laws import Normal
from nescio.likelihoods import Gaussian
from nescio.posterior import GaussianPosterior


def trained(x: torch.Tensor, y: torch.Tensor, steps: int) -> nn.Module:
    """Somebody else's work: any nn.Module, trained in any way."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        (net(x) - y).square().mean().backward()
        optimizer.step()
    return net


def main(quick: bool = False) -> dict[str, float]:
    x = torch.linspace(-2, 2, 80)[:, None]
    y = torch.sin(2 * x) + 0.1 * torch.randn(80, 1, generator=torch.Generator().manual_seed(0))
    net = trained(x, y, 100 if quick else 1000)
    far = torch.tensor([[0.0], [6.0]])
    before = net(far).detach()

    # the five lines
    model = Model(net, Normal(0, 1), Gaussian(0.1))
    posterior = fit(model, (x, y), Laplace(full).on("4.*"))
    assert isinstance(posterior, GaussianPosterior)
    predictive = posterior.linearize().predict(far)
    low, high = predictive.interval(0.9)

    shift = float((predictive.mean - before).abs().max())
    inside, outside = (float(v) for v in predictive.epistemic.sqrt().flatten())
    print(f"prediction moved by {shift:.1e}; epistemic sd {inside:.3f} at a row like the data, {outside:.3f} far away")
    print(f"90% interval far away: {float(low[1]):.2f} to {float(high[1]):.2f}")
    assert shift < 1e-3, "the network's own predictions stay what they were"
    assert outside > 2 * inside, "it knows where it does not know"
    return {"inside": inside, "outside": outside}


if __name__ == "__main__":
    main()
