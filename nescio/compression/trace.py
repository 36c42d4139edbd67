"""The graph of a network's modules and functions, with the value of each node on an example.

torch.fx records which module feeds which. Its proxies know no shapes; these do, from the example, so a forward pass may ask for them
(padding that depends on the image's size). The graph is for looking at: what runs later is the network's own code with smaller layers.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, fx, nn

from nescio.errors import UnsupportedError
from nescio.nets.norm import FilterResponseNorm


@final
class Known(fx.Proxy):
    """A proxy that knows shape, precision and device."""

    @property
    def value(self) -> Any:
        return self.node.meta["value"]

    @property
    def shape(self) -> torch.Size:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        return self.value.device

    def dim(self) -> int:
        return self.value.dim()

    def size(self, axis: int | None = None) -> Any:
        return self.value.shape if axis is None else self.value.shape[axis]

    def __len__(self) -> int:
        return len(self.value)


@final
class Tracer(fx.Tracer):
    """Runs every node on the example as it is recorded."""

    def __init__(self, net: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.net, self.given = net, [x]
        self.running = False

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, FilterResponseNorm) or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return Known(node, self)

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **named: Any) -> fx.Proxy:
        proxy = super().create_proxy(kind, target, args, kwargs, *rest, **named)
        self.running = True
        try:
            proxy.node.meta["value"] = self.run(proxy.node)
        finally:
            self.running = False
        return proxy

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Modules inside a module that is one node are run, not recorded."""
        return forward(*args, **kwargs) if self.running else super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val if self.running else super().getattr(attr, attr_val, parameter_proxy_cache)

    def run(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["value"])
        match node.op:
            case "placeholder":
                if not self.given and not args:
                    raise TypeError(f"a second input {node.target!r}")
                return self.given.pop() if self.given else args[0]
            case "get_attr":
                found: Any = self.net
                for part in str(node.target).split("."):
                    found = getattr(found, part)
                return found
            case "call_module":
                return self.net.get_submodule(str(node.target))(*args, **kwargs)
            case "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            case "call_function":
                return node.target(*args, **kwargs)  # type: ignore[operator]
            case _:
                return args[0] if args else None


def traced(net: nn.Module, x: Tensor) -> fx.Graph:
    """The graph of a network in evaluation mode with one input; every node has its `meta["value"]`."""
    tracer = Tracer(net, x)
    try:
        with torch.no_grad():
            return tracer.trace(net)
    except (fx.proxy.TraceError, TypeError, RuntimeError, ValueError, NotImplementedError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        must = "the network must be a graph of modules that does not depend on the data"
        raise UnsupportedError(must, first, "write it without branches on values, with one tensor as input") from error
