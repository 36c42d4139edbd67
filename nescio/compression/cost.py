"""What a network costs to run: multiplications of its linear and convolution layers, and seconds."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn


def flops(net: nn.Module, x: Tensor) -> int:
    """Twice the multiplications for one row of x; norms and activations are not counted."""
    total = 0

    def count(module: nn.Module, _args: Any, out: Tensor) -> None:
        nonlocal total
        weight: Tensor = module.weight  # type: ignore[assignment]
        uses = out.numel() // weight.shape[0] if weight.dim() > 2 else out.numel() // out.shape[-1]  # positions
        total += 2 * weight.numel() * uses

    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    hooks = [m.register_forward_hook(count) for m in net.modules() if isinstance(m, kinds)]
    try:
        with torch.no_grad():
            net(x[:1])
    finally:
        for hook in hooks:
            hook.remove()
    return total


def seconds(net: nn.Module, x: Tensor, least: float = 0.3) -> float:
    """For one call at x: the shortest of many, over at least so many seconds; on a GPU, to the end of its work."""
    best, spent = float("inf"), 0.0
    with torch.inference_mode():
        for _ in range(3):
            net(x)
        while spent < least:
            began = time.perf_counter()
            net(x)
            if x.is_cuda:
                torch.cuda.synchronize(x.device)
            took = time.perf_counter() - began
            best, spent = min(best, took), spent + took
    return best
