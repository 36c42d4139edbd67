"""The measuring process of MC-dropout predictions: it is given one JSON argument and prints one JSON line.

    {"library": ..., "widths": [784, 500, 500, 10], "inputs": 10000, "passes": 100, "threads": 1, "seed": 0, "launched": ...}

`limit`: seconds of the matrix products that such a prediction cannot do without, measured in the same process before and after: what comes
before the first mask once, the rest for every pass. Seconds are those of the processor. `memory`: what the prediction added to the
most memory that the process had, in bytes.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from child import confine
from torch import Tensor, nn

RATE = 0.5
Predict = Callable[[Tensor, int], Tensor]  # inputs, passes -> mean class probabilities


def network(widths: list[int]) -> nn.Sequential:
    """Dropout before every layer but the first."""
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU(), nn.Dropout(RATE))]
    return nn.Sequential(*layers[:-2])


def by_nescio(net: nn.Sequential, own_layers: bool) -> Predict:
    from nescio import Model
    from nescio.families import BernoulliDropout, NetDropout
    from nescio.laws import Normal
    from nescio.likelihoods import Categorical
    from nescio.posterior import Variational

    family = NetDropout() if own_layers else BernoulliDropout({"0.*": 0.0, "*": RATE})
    posterior = Variational.around(family, Model(net, Normal(0.0, 1.0), Categorical()))
    return lambda x, passes: posterior.predict(x, passes).mean


def by_hand(net: nn.Sequential) -> Predict:
    """The usual loop: training mode, and the mean of the passes."""

    @torch.no_grad()
    def predict(x: Tensor, passes: int) -> Tensor:
        net.train()
        return torch.stack([net(x).softmax(-1) for _ in range(passes)]).mean(0)

    return predict


LIBRARIES: dict[str, Callable[[nn.Sequential], Predict]] = {
    "nescio, BernoulliDropout": lambda net: by_nescio(net, False),
    "nescio, NetDropout": lambda net: by_nescio(net, True),
    "by hand, passes in training mode": by_hand,
}


@torch.no_grad()
def limit(net: nn.Sequential, x: Tensor, passes: int, repeats: int) -> float:
    """Of products into memory that is there already."""
    weights = [layer.weight.mT for layer in net if isinstance(layer, nn.Linear)]
    places = [torch.empty(len(x), w.shape[1]) for w in weights]
    began = time.process_time()
    torch.mm(x, weights[0], out=places[0])
    once = time.process_time() - began
    began = time.process_time()
    for _ in range(repeats):
        for i, w in enumerate(weights[1:]):
            torch.mm(places[i], w, out=places[i + 1])
    return once + passes * (time.process_time() - began) / repeats


def memory() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    confine(spec["threads"])
    torch.set_num_threads(spec["threads"])
    torch.default_generator.manual_seed(spec["seed"])
    net, x, passes = network(spec["widths"]), torch.randn(spec["inputs"], spec["widths"][0]), spec["passes"]
    predict = LIBRARIES[spec["library"]](net)
    predict(x[:100], 2)  # warm
    repeats = min(passes, 10)
    limits, before = [limit(net, x, passes, repeats)], memory()
    began = time.process_time()
    mean = predict(x, passes)
    seconds = time.process_time() - began
    added = memory() - before
    limits.append(limit(net, x, passes, repeats))
    finite = bool(mean.isfinite().all()) and mean.shape == (len(x), spec["widths"][-1])
    answer = {"seconds": seconds, "limit": sum(limits) / 2, "memory": added, "finite": finite}
    print(json.dumps({**answer, "versions": {}, "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
