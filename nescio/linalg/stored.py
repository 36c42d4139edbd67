"""An operator as named tensors and a JSON description, and back."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from nescio.errors import FileError, InputError
from nescio.linalg.blocks import Blocks
from nescio.linalg.kron import Kron, Spectral
from nescio.linalg.low_rank import LowRank
from nescio.linalg.operator import Dense, Diag, Operator

KINDS: dict[str, tuple[type[Operator], tuple[int, ...]]] = {  # and the axes of its tensors
    "Diag": (Diag, (1,)),
    "Dense": (Dense, (2,)),
    "Kron": (Kron, (0, 0)),  # 0: one or two
    "Spectral": (Spectral, (0, 0, 0, 0, 2, -1)),  # -1: none
    "LowRank": (LowRank, (1, 2, 1)),
}


def described(operator: Operator) -> Any:
    """Its kind, or for blocks the list of theirs."""
    return [described(op) for op in operator.operators] if isinstance(operator, Blocks) else operator.kind


def restored(description: Any, tensors: dict[str, Tensor]) -> Operator:
    """From what `described` and `tensors()` gave."""
    try:
        if isinstance(description, list) and description:
            own = [within(f"{i}.", tensors) for i in range(len(description))]
            parts = tuple(restored(kind, part) for kind, part in zip(description, own, strict=True))
            return Blocks(parts, tuple(part["place"] for part in own))
        kind, axes = KINDS[description]
        given = [tensors[name] for name in kind.__dataclass_fields__ if name in tensors]  # type: ignore[attr-defined]
        fits = len(given) == len(axes) and all(
            t.dim() in ((1, 2) if a == 0 else (max(a, 0),)) for t, a in zip(given, axes, strict=True)
        )
        fits = fits and kind(*given).diagonal().shape == (kind(*given).size,)
    except (KeyError, TypeError, RuntimeError, InputError):
        fits, kind, given = False, Diag, []
    if not fits:
        must = f"a file must hold the tensors of its operators, of {sorted(KINDS)}"
        raise FileError(must, f"{description!r} with {sorted(tensors)}", "write it again with nescio")
    return kind(*given)


def within(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
