"""What a function of tensors does, as a graph of torch's operations; one at a time.

torch's tracer changes classes while it runs, and two at once would leave them changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.fx import GraphModule

LOCK = threading.RLock()


def trace(function: Callable[..., Any], inputs: Sequence[Tensor], table: dict[Any, Callable[..., Any]]) -> GraphModule:
    """`table`: operations that are to be written in other words."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with LOCK:
        return make_fx(function, decomposition_table=table)(*inputs)
