"""Noise that a function draws inside, drawn outside and handed in: so that it can be compiled, and compared with itself.

What is drawn is drawn in the order in which the plain code would, from the same generators: compiled and plain runs take the same steps
to rounding, and torch's own generators are faster than a compiler's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
SHAPED = {aten.randn.default, aten.rand.default, aten.randint.default, aten.randint.low}
ALIKE = {aten.randn_like.default, aten.rand_like.default}
Draw = Callable[[], Tensor]


@final
class Recorder(TorchDispatchMode):
    """Notes what is drawn, so that it can be drawn again."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[Draw] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func in SHAPED or func in ALIKE:
            given = (torch.empty_like(args[0]),) if func in ALIKE else args
            self.draws.append(lambda: func(*given, **kwargs))
        elif torch.Tag.nondeterministic_seeded in func.tags:
            raise NotImplementedError(f"{func} draws by itself")
        return out


@final
class Handed(TorchDispatchMode):
    """What would be drawn is taken from what was handed in."""

    def __init__(self, given: Iterator[Tensor]) -> None:
        super().__init__()
        self.given = given

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return next(self.given) if func in SHAPED or func in ALIKE else func(*args, **(kwargs or {}))
