r"""Noise on what a layer takes in, as a law of its weights: what the dropout families have in common.

    W = M diag(z)         z_j: one random number for each input j of the layer

To drop input j is to drop column j of M (a channel of a convolution, a word of an embedding, a unit of a recurrent state). The
parameter is the mean `loc` = E[W] = M E[z], which is what a network with `nn.Dropout` trains: it divides by 1 - p. So q starts where
the network is, and the naive prediction by averaged weights is the prediction at `loc`. Biases and the weights of norm layers are points.

In training each example has its own z, which is exactly a draw of W for each example, for convolutions and maps over tokens, too.
Where no rule is known z is drawn once for the call: the kernels of an LSTM have one mask for all time steps (Gal & Ghahramani, 2016).

The divergence is E_q[-log p(W)] less the entropy of z. As with points, that of M is left out: it is minus infinity whatever M is.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn import functional as F

from nescio.densities import Improper
from nescio.errors import InputError, UnsupportedError
from nescio.families.family import Block, Factor
from nescio.families.independent import Gaussian
from nescio.families.point import Point
from nescio.laws.site import TRANSPOSED
from nescio.weights import Action, Convolve, values

Rates = float | Mapping[str, float]  # one for all layers, or by patterns of names, of which the first match wins


class Multiplied(Factor, Action):
    """The weights of one layer, each input multiplied by a random number of mean one."""

    index: Tensor | None

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        site = block.site
        assert site is not None
        self.loc = nn.Parameter(block.start.view(block.shape).clone())
        index = site.index("input")
        self.inputs = int(index.max()) + 1
        self.axis = 0 if isinstance(site.module, TRANSPOSED) else 1
        blockwise = block.shape[self.axis] != self.inputs  # a grouped convolution: the index says which input
        self.register_buffer("index", index.to(self.loc.device) if blockwise else None, persistent=False)

    @abstractmethod
    def noise(self, rows: int) -> Tensor:
        """z / E[z], (rows, inputs)."""

    @abstractmethod
    def entropy(self) -> Tensor | float:
        """Of z, all inputs together."""

    def each(self, z: Tensor) -> Tensor:
        """From one number for each input to one for each weight, or a shape that broadcasts to it."""
        if self.index is not None:
            return z[self.index].view(self.loc.shape)
        return z.view([-1 if axis == self.axis else 1 for axis in range(self.loc.dim())])

    def draw(self) -> Tensor:
        return (self.loc * self.each(self.noise(1)[0])).reshape(-1)

    def mean(self) -> Tensor:
        return self.loc.reshape(-1)

    def log_prob(self, u: Tensor) -> Tensor:
        """Its expectation, which is known: minus the entropy of z."""
        return u.new_zeros(()) - self.entropy()

    # ---- how it acts -------------------------------------------------------------------------------------------

    def linear(self, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Tensor:
        z = self.noise(len(x)).view(len(x), *[1] * (x.dim() - 2), self.inputs)
        return F.linear(x * z.to(x.dtype), self.loc, values(bias))

    def convolve(self, convolution: Convolve, x: Tensor, bias: Tensor | None, value: Callable[[], Tensor]) -> Tensor:
        z = self.noise(len(x)).view(len(x), self.inputs, *[1] * (x.dim() - 2))
        return convolution(x * z.to(x.dtype), self.loc, values(bias))


# ---- for the families --------------------------------------------------------------------------------------------------


def layers(blocks: Sequence[Block], rates: Rates, make: Callable[[Block, float], Factor]) -> list[Factor]:
    """`make(block, rate)` for weights that have inputs and a rate above zero; points for the others, Gaussians for scales."""
    factors: list[Factor] = []
    used: set[str] = set()
    given = dict(rates) if isinstance(rates, Mapping) else {"*": rates}
    names = [block.name for block in blocks if block.site is not None]
    for block in blocks:
        if block.site is None:
            factors.append(Gaussian(block))
            continue
        first = next((pattern for pattern in given if fnmatchcase(block.name, pattern)), None)
        if first is None:
            must, got = "every layer needs a rate", f"none for {block.name!r} among {list(given)}"
            raise InputError(must, got, f"the names are {names}; end with '*'")
        used.add(first)
        factors.append(make(block, given[first]) if len(block.shape) > 1 and given[first] else Point(block))
    if set(given) - used and names:
        raise InputError(
            "every pattern must be the first match of a weight",
            repr(sorted(set(given) - used)[0]),
            f"the names are {names}",
        )
    return factors


def check_rates(rates: Rates, most: float, name: str) -> None:
    """Each in [0, most)."""
    for rate in rates.values() if isinstance(rates, Mapping) else [rates]:
        if not 0 <= rate < most:
            raise InputError(
                f"{name} must be in [0, {most})", str(rate), "0 leaves a layer without noise, 0.1 is a mild rate"
            )


def normal_cross_entropy(prior: Normal, loc: Tensor, square: Tensor | float) -> Tensor:
    """E[-log p(W)] for W of mean loc and E[W²] = square · loc², summed; `square` broadcasts to loc."""
    m, s, n = prior.loc, prior.scale, loc.numel()
    if m.dim() or s.dim():  # a number for each weight
        away = (square * loc.square()).reshape(-1) - 2 * m * loc.reshape(-1) + m.square()
        each = 0.5 * away / s.square() + s.log() + 0.5 * math.log(2 * math.pi)
        return each.expand(n).sum(dtype=torch.float64)
    if isinstance(square, Tensor) and square.dim():
        squares = (square * loc.square()).sum()
    else:
        squares = square * torch.dot(loc.reshape(-1), loc.reshape(-1))
    if m.requires_grad or m.is_cuda or m.item():  # mostly m is zero, and nobody waits for a GPU to tell
        squares = squares - 2 * m * loc.sum() + n * m.square()
    return (0.5 * squares / s.square() + n * s.log()).double() + 0.5 * n * math.log(2 * math.pi)


def check_at_zero(prior: Distribution) -> None:
    """Multiplied weights may be zero, or shrink to it for nothing."""
    if isinstance(prior, Improper) and prior.power < 0:
        raise UnsupportedError(
            "dropout needs a prior that is finite at zero",
            "1 / |w|",
            "use Normal, or VariationalDropout for LogUniform",
        )
