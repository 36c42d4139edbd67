"""Operations that torch's compiler turns into faster code when they are said in other words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nescio.narrow import convolution, convolution_backward

NARROW = 16  # columns: with fewer, a product on the CPU is faster as (BᵀAᵀ)ᵀ, two to five times


def rewritten(cuda: bool) -> dict[Any, Callable[..., Any]]:
    """By operation; a function that returns NotImplemented leaves one as it is."""
    aten = torch.ops.aten
    table: dict[Any, Callable[..., Any]] = {aten.bmm.default: products, aten.mm.default: product}
    table |= {aten.addmm.default: shifted_product, aten.masked_fill_.Scalar: filled}
    if not cuda:
        return {**table, aten.tanh.default: tanh}
    return {**table, aten.convolution.default: convolution, aten.convolution_backward.default: convolution_backward}


def filled(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """In the layout of x: the compiler's own words are a fill of a contiguous copy, and images come channels last."""
    return x.copy_(torch.where(mask, torch.full((), value, dtype=x.dtype, device=x.device), x))


def tanh(x: Tensor) -> Tensor:
    """Through the logistic function, which compilers for the CPU vectorise; right to rounding, but not near 0 relative to x."""
    return 2 * torch.sigmoid(2 * x) - 1


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
