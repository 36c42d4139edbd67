"""Sequences of different lengths as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nescio.errors import InputError


def padded(sequences: Sequence[Sequence[int] | Tensor], steps: int, padding: int = 0) -> Tensor:
    """Tokens (sequences, steps): cut to the first `steps`, filled up with `padding` behind. A sequence without tokens is refused."""
    if steps < 1:
        raise InputError("sequences are cut to at least one step", str(steps), "use for instance steps=40")
    empty = [i for i, each in enumerate(sequences) if len(each) == 0]
    if empty or not len(sequences):
        got = f"{len(empty)} of length zero, the first at row {empty[0]}" if empty else "no sequences"
        raise InputError("a sequence must have at least one token", got, "leave empty ones out, with their labels")
    out = torch.full((len(sequences), steps), padding, dtype=torch.long)
    for row, each in zip(out, sequences, strict=True):
        cut = torch.as_tensor(each)[:steps].long()
        row[: len(cut)] = cut
    return out
