"""A device that this machine has, or a sentence about it: torch tells it by a RuntimeError, an AssertionError or a NotImplementedError."""

from __future__ import annotations

import torch

from nescio.errors import InputError


def usable(device: str | torch.device) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        here = ["cpu", *(name for name in ("cuda", "mps", "xpu") if has(name))]
        raise InputError("the device must be one of this machine", str(device), f"use {' or '.join(here)}") from error


def has(name: str) -> bool:
    module = getattr(torch, name, None)
    return module is not None and module.is_available()
