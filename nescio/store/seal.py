"""What a stored tensor may be, and the SHA-256 that seals the content of a file."""

from __future__ import annotations

import hashlib
import json

import torch
from torch import Tensor

# The dtypes that can be stored, by their names in the safetensors format.
CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Seal:
    """SHA-256 over the header and, for each tensor in order of name, its name, dtype, shape and bytes."""

    def __init__(self, text: str) -> None:
        self._hash = hashlib.sha256()
        self._part(text)

    def _part(self, text: str) -> None:
        # The length goes first: no two different contents run together into the same bytes.
        content = text.encode()
        self._hash.update(len(content).to_bytes(8, "little") + content)

    def add(self, name: str, tensor: Tensor) -> None:
        self._part(json.dumps([name, CODES[tensor.dtype], list(tensor.shape)]))
        self._hash.update(as_bytes(tensor))

    def hex(self) -> str:
        return self._hash.hexdigest()


def fault(tensor: Tensor) -> str | None:
    """Why a tensor of a known dtype cannot be stored; None if it can."""
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        return "values that are not finite"
    # To torch a bool byte of 2 is neither true nor false.
    if tensor.dtype == torch.bool and (tensor.reshape(-1).view(torch.uint8) > 1).any():
        return "bools that are neither 0 nor 1"
    return None


def as_bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor in main memory, not copied."""
    return bytes_of(tensor).numpy().data


def bytes_of(tensor: Tensor) -> Tensor:
    """The same memory as bytes. A contiguous tensor of one number may have any stride, such as one that was expanded."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
