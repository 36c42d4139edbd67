"""Many small dropout networks trained side by side: the grid of a search, on all splits of a set, in one call of a GPU.

Each network has its own rows, rate, penalty, shuffles and masks; the loss of each is that of VI(BernoulliDropout(p)) under Gaussian(√½)
and the Normal prior of its penalty, per observation and without constants, which a test holds it to. A step of the library takes
milliseconds of Python for one network; 240 networks here take about as long as one, and on a GPU a step is recorded as one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch
from digits import glorot
from torch import Tensor, nn

from nescio.nets import mlp
from nescio.noise import Noise

BATCH = 128


class Rows(NamedTuple):
    """Standardised: x (splits, rows, inputs), y (splits, rows); `split`: of each network, (networks,)."""

    x: Tensor
    y: Tensor
    split: Tensor


@final
class Stack(nn.Module):
    """One hidden layer of ReLU units; `rates` (networks,), `penalties` of ‖W‖² (networks,)."""

    rates: Tensor
    penalties: Tensor

    def __init__(self, inputs: int, hidden: int, rates: Tensor, penalties: Tensor, noise: Noise) -> None:
        super().__init__()
        nets = [glorot(mlp(inputs, hidden, 1), noise.at(i)) for i in range(len(rates))]
        first, last = ([dict(net.named_parameters())[f"{i}.weight"].detach().T for net in nets] for i in (0, 2))
        self.first, self.last = nn.Parameter(torch.stack(first)), nn.Parameter(torch.stack(last))
        self.first_bias = nn.Parameter(torch.zeros(len(rates), 1, hidden))
        self.last_bias = nn.Parameter(torch.zeros(len(rates), 1, 1))
        self.register_buffer("rates", rates[:, None, None])
        self.register_buffer("penalties", penalties)

    def uniforms(self, *lead: int) -> list[Tensor]:
        """What masks are made of, for inputs and for hidden units, (*lead, units) each."""
        return [torch.rand(*lead, w.shape[1], dtype=w.dtype, device=w.device) for w in (self.first, self.last)]

    def dropped(self, x: Tensor, u: Tensor) -> Tensor:
        """x (networks, rows, units) under masks of their own for u's rows, or under one for all."""
        return x * ((u >= self.rates) / (1 - self.rates))

    def forward(self, x: Tensor, coherent: bool = False, uniforms: Sequence[Tensor] | None = None) -> Tensor:
        """x (networks, rows, inputs) to (networks, rows). `coherent`: one mask for all rows, a draw of a function."""
        u, v = uniforms or self.uniforms(len(x), 1 if coherent else x.shape[1])
        h = torch.baddbmm(self.first_bias, self.dropped(x, u), self.first).relu()
        return torch.baddbmm(self.last_bias, self.dropped(h, v), self.last)[..., 0]

    def loss(self, x: Tensor, y: Tensor, weight: Tensor, uniforms: Sequence[Tensor] | None = None) -> Tensor:
        """Of each network, (networks,). `weight` (rows,): 1, or 0 for rows that only fill up a batch."""
        fit = ((self(x, uniforms=uniforms) - y).square() * weight).sum(1) / weight.sum()
        return fit + self.penalties * (self.first.square().sum((1, 2)) + self.last.square().sum((1, 2)))

    def net(self, i: int) -> nn.Module:
        """One of the networks, without its dropout."""
        net = mlp(self.first.shape[1], self.first.shape[2], 1)
        own = {"0.weight": self.first[i].T, "0.bias": self.first_bias[i, 0]}
        net.load_state_dict({**own, "2.weight": self.last[i].T, "2.bias": self.last_bias[i, 0]})
        return net.cpu()


def train(stack: Stack, rows: Rows, epochs: int, noise: Noise) -> None:
    """Adam as Keras has it, batches of 128 and a smaller last one."""
    n, device = rows.x.shape[1], stack.first.device
    steps = -(-n // BATCH)
    size = BATCH if n >= BATCH else n
    order = torch.zeros(len(rows.split), steps * size, dtype=torch.long, device=device)
    weights = (torch.arange(steps * size, device=device) < n).to(rows.x.dtype).view(steps, size)
    adam = torch.optim.Adam(stack.parameters(), lr=1e-3, eps=1e-7, capturable=device.type == "cuda")
    step = torch.zeros((), dtype=torch.long, device=device)
    uniforms = stack.uniforms(steps, len(order), size)  # of an epoch: drawn outside the graph

    def advance() -> None:
        index = order.view(len(order), steps, size).index_select(1, step[None])[:, 0]
        x, y = rows.x[rows.split[:, None], index], rows.y[rows.split[:, None], index]
        own = [u.index_select(0, step[None])[0] for u in uniforms]
        loss = stack.loss(x, y, weights.index_select(0, step[None])[0], own).sum()
        adam.zero_grad(set_to_none=device.type == "cpu")
        loss.backward()
        adam.step()
        step.add_(1).remainder_(steps)

    with noise.scope():
        go = advance if device.type == "cpu" else recorded(advance, stack, adam, step)
        for _ in range(epochs):
            order[:, :n] = torch.rand(len(order), n, device=device).argsort(1)
            for u in uniforms:
                u.uniform_()
            for _ in range(steps):
                go()
    if device.type == "cuda":
        torch.cuda.synchronize()  # before the graph and what it reads are given back


def recorded(advance: Callable[[], None], stack: Stack, adam: torch.optim.Adam, step: Tensor) -> Callable[[], None]:
    """The same as one CUDA graph. It is warmed up by a few real steps, which are then taken back."""
    before = [p.detach().clone() for p in stack.parameters()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            advance()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        advance()
    with torch.no_grad():
        for p, old in zip(stack.parameters(), before, strict=True):
            p.copy_(old)
        for state in adam.state.values():
            for value in state.values():
                value.zero_()
        step.zero_()
    return graph.replay


@torch.no_grad()
def draws(stack: Stack, x: Tensor, split: Tensor, n: int, noise: Noise) -> Tensor:
    """n coherent functions of each network at its own rows of x (splits, rows, inputs): (n, networks, rows)."""
    with noise.scope():
        return torch.stack([stack(x[split], coherent=True) for _ in range(n)])
