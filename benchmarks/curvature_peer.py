"""curvlinops' side of benchmarks/curvature.py, without the packages that it would bring: one JSON argument, one JSON line."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from laplace_case import data, network, spec, timed
from torch import Tensor, nn

sys.modules["backpack"] = None  # type: ignore[assignment]  # as installed with --no-deps
sys.path.append(sys.path.pop(0))  # `laplace` and the like are theirs
from curvlinops import GGNLinearOperator, KFACLinearOperator  # noqa: E402

SUM = nn.CrossEntropyLoss(reduction="sum")


class Through(nn.Module):
    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


NETS: dict[str, Callable[[], nn.Module]] = {
    "layer norm": lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 3)),
    "embedding": lambda: Through(
        lambda m, x: m.b(m.a(x.long().clamp(0, 4)).mean(1)), a=nn.Embedding(5, 4), b=nn.Linear(4, 3)
    ),
    "LSTM": lambda: Through(
        lambda m, x: m.b(m.a(x[..., None])[0][:, -1]), a=nn.LSTM(1, 4, batch_first=True), b=nn.Linear(4, 3)
    ),
    "tied weights": lambda: Through(lambda m, x: m.b(m.a(m.a(x).tanh()).tanh()), a=nn.Linear(6, 6), b=nn.Linear(6, 3)),
}


def said(net: nn.Module) -> str:
    """What its KFAC does with a network: an error, or how far the first weight's block is from Gauss-Newton, for one example."""
    x, y = torch.randn(1, 6), torch.zeros(1, dtype=torch.long)
    params = list(net.parameters())
    eye, first = torch.eye(sum(p.numel() for p in params)), slice(0, params[0].numel())
    try:
        found = KFACLinearOperator(net, SUM, params, [(x, y)], check_deterministic=False, fisher_type="type-2") @ eye
    except (NotImplementedError, RuntimeError, ValueError) as error:
        return f"refused: {str(error).splitlines()[0]}"
    exact = GGNLinearOperator(net, SUM, params, [(x, y)], check_deterministic=False) @ eye
    gap = (found - exact)[first, first].norm() / exact[first, first].norm()
    return f"off by {float(gap):.2f} of its norm"


def main(given: dict[str, Any]) -> None:
    torch.set_num_threads(given["threads"])
    warnings.simplefilter("ignore")
    x, y = data("mlp", given["points"])
    net, batches = network("mlp"), list(zip(x.split(1024), y.split(1024), strict=True))
    params = list(net.parameters())
    product = GGNLinearOperator(net, SUM, params, batches, check_deterministic=False)
    vectors = torch.randn(product.shape[1], 10)

    def factors() -> Any:
        kfac = KFACLinearOperator(net, SUM, params, batches, check_deterministic=False, fisher_type="type-2")
        return kfac @ vectors[:, :1]  # factors are made when first used

    seconds = {"factors": timed(factors, 3)[2], "product": timed(lambda: product @ vectors, 3)[2]}
    torch.manual_seed(0)
    layers = {name: said(make()) for name, make in NETS.items()}
    print(json.dumps({**seconds, "layers": layers, "version": version("curvlinops-for-pytorch")}), flush=True)


if __name__ == "__main__":
    main(spec())
