"""Standardisation of columns by their training rows, in float64, and a module that carries it inside a network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from nescio.errors import InputError

FINE = 0.01  # of the standard deviation: a step below is as good as none


def steps(y: Tensor) -> float:
    """The step of a single target whose values are all multiples of one (of each other's smallest distance); 0 if there is none."""
    flat = y.detach().double().cpu().flatten()
    values = flat.unique()
    if (y.dim() > 1 and y.shape[1] > 1) or len(values) < 2:
        return 0.0
    step = float(values.diff().min())
    counts = (values - values[0]) / step
    even = bool(((counts - counts.round()).abs() < 1e-3).all())
    return float(f"{step:.6g}") if even and step >= FINE * float(flat.std()) else 0.0


@final
@dataclass(frozen=True, eq=False)
class Scaling:
    """z = (x - loc) / scale by column. `constant` names the columns that did not vary: their scale is 1."""

    loc: Tensor  # (d,) float64
    scale: Tensor  # (d,) float64, > 0
    constant: tuple[int, ...] = ()

    @staticmethod
    def of(x: Tensor) -> Scaling:
        """Mean and (population) standard deviation of the rows of x: give it the training rows only."""
        if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] < 1:
            raise InputError("x must be (rows, columns), neither empty", f"shape {tuple(x.shape)}", "pass a matrix")
        if not bool(torch.isfinite(x).all()):
            raise InputError("x must be finite", "NaN or infinity", "impute or drop those cells first")
        x = x.detach().double().cpu()
        loc = x.mean(0)
        centred = x - loc
        largest = centred.abs().amax(0)
        flat = (x.amax(0) == x.amin(0)) | (largest == 0)
        largest = torch.where(flat, 1.0, largest)
        # Squares of centred / largest neither overflow nor vanish.
        scale = largest * (centred / largest).square().mean(0).sqrt()
        loc = torch.where(flat, x[0], loc)  # the mean of equal numbers can be off by a rounding
        scale = torch.where(flat, 1.0, scale)
        return Scaling(loc, scale, tuple(flat.nonzero().flatten().tolist()))

    def __post_init__(self) -> None:
        ok = self.loc.ndim == 1 and self.loc.shape == self.scale.shape and self.loc.dtype == torch.float64
        ok = ok and self.scale.dtype == torch.float64 and bool(torch.isfinite(self.loc).all())
        if not (ok and bool((torch.isfinite(self.scale) & (self.scale > 0)).all())):
            got = f"shapes {tuple(self.loc.shape)} and {tuple(self.scale.shape)}, {self.loc.dtype}, {self.scale.dtype}"
            raise InputError(
                "loc and scale must be float64 vectors of one length, finite, scale > 0", got, "use Scaling.of(x)"
            )

    def forward(self, x: Tensor) -> Tensor:
        """Standardised x, in the dtype of x; the subtraction is done in float64."""
        return ((x.double() - self.loc.to(x.device)) / self.scale.to(x.device)).to(x.dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """The numbers that `forward` maps to z, in the dtype of z."""
        return (z.double() * self.scale.to(z.device) + self.loc.to(z.device)).to(z.dtype)

    def to_json(self) -> str:
        state = {"loc": self.loc.tolist(), "scale": self.scale.tolist(), "constant": list(self.constant)}
        return json.dumps(state)  # Python prints the shortest digits that read back exactly

    @staticmethod
    def from_json(text: str) -> Scaling:
        try:
            state = json.loads(text)
            loc, scale = (torch.tensor(state[key], dtype=torch.float64) for key in ("loc", "scale"))
            constant = tuple(int(i) for i in state["constant"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError("the text must come from Scaling.to_json", repr(text[:40]), "save it again") from error
        return Scaling(loc, scale, constant)


@final
class Standardize(nn.Module):
    """`Scaling` as the first layer of a network: buffers only, so it is stored and moved with the weights.

    The offset is held as a sum of two numbers, loc + rest, each in the dtype of the network. With x near loc the
    difference x - loc is exact, so a column such as 1e8 ± 1 survives in float32 as far as x itself holds it, no
    device needs float64, and `net.float()` or `net.double()` do no harm. The output has the dtype of the buffers
    (float32 unless the network is cast), whatever the dtype of x: pass x in float64 where float32 cannot hold it.
    """

    loc: Tensor
    rest: Tensor
    scale: Tensor

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        loc = scaling.loc.float()
        self.register_buffer("loc", loc)
        self.register_buffer("rest", (scaling.loc - loc.double()).float())
        self.register_buffer("scale", scaling.scale.float())
        if not bool((torch.isfinite(self.loc) & torch.isfinite(self.scale) & (self.scale > 0)).all()):
            got = "a column beyond the range of float32"
            raise InputError("loc and scale must fit float32", got, "change the unit of that column")

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1:] != self.loc.shape:
            must = f"the last dimension must be {self.loc.shape[0]}, as in the training rows"
            raise InputError(must, f"shape {tuple(x.shape)}", "pass the same columns")
        x = x.to(torch.promote_types(x.dtype, self.loc.dtype))
        return (((x - self.loc) - self.rest) / self.scale).to(self.loc.dtype)


def standardize(scaling: Scaling) -> Standardize:
    """The module for `nn.Sequential(standardize(scaling), network)`."""
    return Standardize(scaling)
