"""Operations that torch's compiler turns into faster code when they are said in other words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, get_decompositions

from nescio.narrow import convolution, convolution_backward

# tanh x = x P(x²) / Q(x²) in single precision, the coefficients that Eigen and XLA have; beyond ONE_FROM it is ±1
ABOVE = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08)
ABOVE += (1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)
BELOW = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
ONE_FROM = 7.90531110763549805
NARROW = 16  # columns: with fewer, a product on the CPU is faster as (BᵀAᵀ)ᵀ, two to five times


def rewritten(cuda: bool) -> dict[Any, Callable[..., Any]]:
    """By operation; a function that returns NotImplemented leaves one as it is."""
    aten = torch.ops.aten
    table: dict[Any, Callable[..., Any]] = {aten.bmm.default: products, aten.mm.default: product}
    table |= {aten.addmm.default: shifted_product, aten.masked_fill_.Scalar: filled}
    if not cuda:
        return {**table, aten.tanh.default: tanh}
    return {**table, aten.convolution.default: convolution, aten.convolution_backward.default: convolution_backward}


def native_table() -> dict[Any, Callable[..., Any]]:
    """For code that is written here: products with a vector as sums, and what torch itself says in simpler words."""
    aten = torch.ops.aten
    ours: dict[Any, Callable[..., Any]] = {
        aten.bmm.default: vector_products,
        aten.mm.default: vector_product,
        aten.dot.default: lambda a, b: (a * b).sum(),
        aten.mv.default: lambda a, b: (a * b).sum(1),
        aten.tanh.default: quotient,
        aten.var_mean.correction: spread,
        aten.var.correction: lambda x, *given, **named: spread(x, *given, **named)[0],
        aten.exp2.default: lambda x: (x * math.log(2)).exp(),
        aten.pow.Scalar: power,
    }
    known = (aten.addmm, aten.softplus, aten.softplus_backward, aten.sigmoid_backward, aten.tanh_backward, aten.rsub)
    more = (aten.elu, aten.gelu, aten.hardtanh, aten.leaky_relu, aten._softmax, aten._log_softmax)
    more += (aten.native_layer_norm, aten.native_group_norm, aten.native_batch_norm)
    simpler = {
        op: rule for op, rule in core_aten_decompositions().items() if getattr(op, "overloadpacket", op) not in known
    }
    return {**simpler, **get_decompositions(more), **ours}


def quotient(x: Tensor) -> Any:
    return tanh(x) if x.dtype == torch.float32 else NotImplemented


def spread(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    """Variance and mean."""
    dims = list(range(x.dim())) if not dim else list(dim)
    count = math.prod(x.shape[d] for d in dims)
    mean = x.sum(dims, keepdim=True) / count
    variance = (x - mean).square().sum(dims, keepdim) / max(0, count - (1 if correction is None else correction))
    return variance, mean if keepdim else mean.reshape(variance.shape)


def power(base: float, x: Tensor) -> Any:
    return (x * math.log(base)).exp() if base > 0 and x.is_floating_point() else NotImplemented


def vector_products(a: Tensor, b: Tensor) -> Any:
    return products(a, b) if 1 in (a.shape[2], b.shape[2], a.shape[1]) else NotImplemented


def vector_product(a: Tensor, b: Tensor) -> Any:
    if not a.is_floating_point():
        return NotImplemented  # sums of small whole numbers are of large ones
    if a.shape[1] == 1:
        return a * b
    if b.shape[1] == 1:
        return (a * b.mT).sum(1, keepdim=True)
    return (a.mT * b).sum(0, keepdim=True) if a.shape[0] == 1 else NotImplemented


def filled(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """In the layout of x: the compiler's own words are a fill of a contiguous copy, and images come channels last."""
    return x.copy_(torch.where(mask, torch.full((), value, dtype=x.dtype, device=x.device), x))


def tanh(x: Tensor) -> Tensor:
    """In single precision a quotient of polynomials, right to a few units of the last place; else through the logistic function, right to
    rounding, but not near 0 relative to x. Compilers for the CPU vectorise both."""
    if x.dtype != torch.float32:
        return 2 * torch.sigmoid(2 * x) - 1
    x = x.clamp(-ONE_FROM, ONE_FROM)
    s = x * x
    return x * polynomial(s, ABOVE) / polynomial(s, BELOW)


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """By Horner's rule, that of the highest power first."""
    value = coefficients[0] * x + coefficients[1]
    for c in coefficients[2:]:
        value = value * x + c
    return value


def products(a: Tensor, b: Tensor) -> Any:
    """Products with a vector are sums and outer products, which melt into their neighbours; a slice of a wider tensor is copied
    first, for a matrix that lies askew in memory is slow to multiply."""
    if a.shape[2] == 1:
        return a * b
    if b.shape[2] == 1:
        return (a * b.mT).sum(2, keepdim=True)
    if a.shape[1] == 1:
        return (a.mT * b).sum(1, keepdim=True)
    if askew(a) or askew(b):
        return torch.bmm(straight(a), straight(b))
    if not a.is_cuda and b.shape[2] < min(NARROW, a.shape[1]):
        return torch.bmm(b.mT, a.mT).mT
    return NotImplemented


def product(a: Tensor, b: Tensor) -> Any:
    if 1 in (a.shape[1], b.shape[1], a.shape[0]):
        return products(a[None], b[None])[0]
    if not a.is_cuda and b.shape[1] < min(NARROW, a.shape[0]):
        return torch.mm(b.mT, a.mT).mT
    return NotImplemented


def shifted_product(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    return c + torch.mm(a, b) if 1 in (a.shape[1], b.shape[1], a.shape[0]) and beta == alpha == 1 else NotImplemented


def askew(x: Tensor) -> bool:
    return x.stride(0) > x.shape[1] * x.shape[2]


def straight(x: Tensor) -> Tensor:
    if not askew(x):
        return x
    return x.contiguous() if x.stride(2) == 1 else x.mT.contiguous().mT
