"""A network as a function of its parameters: private copies, called once or for many stacked parameters at a time.

The user's module is never written to. Two copies share their tensors: one for predictions, in evaluation mode, and one for
training, with the modes of the module as it was handed over (so a part that was put into eval mode stays frozen).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_flatten, tree_map

from nescio.errors import InputError
from nescio.noise import Noise

Params = dict[str, Tensor]

BUDGET = 64 * 2**20  # bytes of activations that one call may take: a CPU is faster near its caches


@final
class Network(nn.Module):
    """`net` as f(params, x). x may be a tensor, a tuple (positional) or a dictionary (keywords)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.training_net = copy.deepcopy(net)
        tensors = (*self.training_net.parameters(), *self.training_net.buffers())
        self.net = copy.deepcopy(self.training_net, memo={id(t): t for t in tensors}).eval()
        self._facts: dict[Any, int] = {}

    @property
    def like(self) -> Tensor:
        """A parameter, for its device and precision."""
        return next(p for p in self.net.parameters() if p.requires_grad)

    def weights(self) -> Params:
        """The trainable parameters as they came."""
        return {name: p.detach() for name, p in self.net.named_parameters() if p.requires_grad}

    def statistics(self) -> Params:
        """The buffers as they came, copied."""
        return {name: b.detach().clone() for name, b in self.net.named_buffers()}

    def restarted(self, noise: Noise) -> tuple[Params, Params]:
        """Parameters and buffers after a fresh run of the modules' own initialisation, children before parents as in __init__."""
        fresh = copy.deepcopy(self.training_net)
        with noise.scope():
            for path, module in reversed(list(fresh.named_modules())):
                reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
                own = [name for name, p in module.named_parameters(recurse=False) if p.requires_grad]
                if callable(reset):
                    reset()
                elif own:
                    raise InputError(
                        "members restart by reset_parameters()",
                        f"{type(module).__name__} at {path!r} without one for {own}",
                        "give it that method",
                    )
        weights = {name: p.detach() for name, p in fresh.named_parameters() if p.requires_grad}
        return weights, {name: b.detach() for name, b in fresh.named_buffers()}

    def call(self, params: Params, x: Any, training: bool = False) -> Any:
        """f at these parameters (and buffers, which training updates in place)."""
        net = self.training_net if training else self.net
        if isinstance(x, dict):
            return functional_call(net, params, (), x)
        return functional_call(net, params, x if isinstance(x, tuple) else (x,))

    def within(self, params: Params, x: Any, then: Callable[[Any], Any]) -> Any:
        """then(f) in training, while the parameters are in their places: who takes gradients through `torch.utils.checkpoint`,
        which calls parts of the network again, must do it there."""
        args, named = ((), x) if isinstance(x, dict) else (x if isinstance(x, tuple) else (x,), {})
        inside = {f"net.{name}": value for name, value in params.items()}
        return functional_call(Within(self.training_net), inside, (then, args, named))

    def stacked(self, params: Params, x: Any, vector: bool) -> Any:
        """f under stacked parameters, (draws, points, ...): one vmap, or a loop where the network does not allow it."""
        draws = len(next(iter(params.values())))
        if vector and draws > 1:
            same = {name: value[0] for name, value in params.items() if not value.stride(0)}  # expanded: one for all
            own = {name: value for name, value in params.items() if name not in same}
            if own and same and not self._facts.get("mixes"):
                try:  # what comes before the first parameter that differs is computed once for all draws
                    return vmap(lambda p: self.call({**same, **p}, x))(own)
                except RuntimeError:  # it writes what differs into what does not
                    self._facts["mixes"] = 1
            return vmap(lambda p: self.call(p, x))(params)
        each = [self.call({name: value[i] for name, value in params.items()}, x) for i in range(draws)]
        return tree_map(lambda *f: torch.stack(f), *each)

    def here(self, x: Any) -> Any:
        """x on the network's device, where `fit` moves the data, too."""
        device = self.like.device
        return tree_map(lambda t: t.to(device) if isinstance(t, Tensor) else t, x)

    def probe(self, x: Any) -> Any:
        """f at the network's own weights; refuses inputs that it does not take."""
        try:
            with torch.no_grad():
                return self.call({}, self.here(x))
        except (RuntimeError, TypeError, IndexError) as error:
            first = str(error).splitlines()[0]
            remedy = f"check the shape of x and that it is {self.like.dtype}"
            raise InputError("the network must accept the inputs", first, remedy) from error

    def outputs(self, params: Params, x: Any) -> Any:
        """f under stacked parameters, (draws, points, ...)."""
        if not rows(x):
            raise InputError("inputs must hold at least one point", "none", "leave out what has no rows")
        expect_finite(x)
        x = self.here(x)
        try:
            with Noise(
                device=self.like.device
            ).scope():  # a network that draws in its forward pass draws the same again
                return self.chunked(params, x)
        except (RuntimeError, TypeError, IndexError):
            self.probe(tree_map(lambda t: t[:1], x))  # if it is the inputs, this says so
            raise

    def chunked(self, params: Params, x: Any) -> Any:
        """`stacked`, in chunks of draws and points whose activations fit the budget."""
        draws, points = len(next(iter(params.values()))), rows(x)
        vector = self.vectorises(x)
        moved = {name for name, value in params.items() if vector and value.stride(0)}
        once, each = self.bytes_before(x, moved)
        budget = room(self.like.device)
        fit = (budget // min(points, 256) - once) // each  # draws, with points enough to keep a processor busy
        many = max(1, min(draws, max(fit, once // each))) if vector else 1  # and what is common is not half of the work
        step = max(1, min(points, budget // (once + many * each)))
        columns = []
        for i in range(0, points, step):
            piece = tree_map(lambda t, i=i: t[i : i + step], x)
            chunks = ({name: value[j : j + many] for name, value in params.items()} for j in range(0, draws, many))
            columns.append(tree_map(lambda *p: torch.cat(p), *[self.stacked(chunk, piece, vector) for chunk in chunks]))
        return tree_map(lambda *p: torch.cat(p, 1), *columns)

    def vectorises(self, x: Any, training: bool = False) -> bool:
        """Whether vmap over parameters works without torch's slow path and, predicting, gives what a loop gives; tried once on two rows."""
        return bool(self._fact("trains" if training else "predicts", x, lambda: try_vmap(self, x, training)))

    def recomputes(self, x: Any) -> bool:
        """Whether gradients taken after a call are wrong, for parts of the network are called again on the way back
        (`torch.utils.checkpoint`), when the parameters are no longer in their places. See `within`."""
        return bool(self._fact("recomputes", x, lambda: try_backward(self, x)))

    def bytes_per_point(self, x: Any) -> int:
        """What one point takes in one call: the outputs of all modules, counted on one row."""
        return self._fact("bytes", x, lambda: sum(count_bytes(self, x, set())))

    def bytes_before(self, x: Any, moved: Collection[str]) -> tuple[int, int]:
        """The same in two parts: before the first module with a parameter that draws move, once for all of them, and from there on."""
        whole = self.bytes_per_point(x)
        if not moved or self._facts.get("mixes"):
            return 0, whole
        before = self._fact(f"bytes before {sorted(moved)}", x, lambda: count_bytes(self, x, moved)[0])
        return before, max(1, whole - before)

    def _fact(self, name: str, x: Any, find: Callable[[], int]) -> int:
        """Found out once for each shape of an input."""
        key = (name, *((tuple(t.shape[1:]), t.dtype) for t in tree_flatten(x)[0]))
        if key not in self._facts:
            with torch.no_grad(), Noise(device=self.like.device).scope():
                self._facts[key] = find()
        return self._facts[key]


@final
class Within(nn.Module):
    """A network and what follows it, as one module."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, then: Callable[[Any], Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return then(self.net(*args, **named))


def try_vmap(network: Network, x: Any, training: bool) -> bool:
    pair = few(x, 2)  # two rows even of one: norm layers need them
    two = {name: torch.stack([p, 1.01 * p]) for name, p in network.weights().items()}
    statistics = {name: torch.stack([b, b]) for name, b in network.statistics().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the network's own warnings are not ours
        warnings.filterwarnings("error", message=".*batching rule")  # the slow path
        try:
            if training:
                vmap(lambda p: network.call(p, pair, training=True), randomness="different")({**two, **statistics})
                return True
            loop, same = (tree_flatten(network.stacked(two, pair, vector))[0] for vector in (False, True))
            return all(torch.allclose(a, b, 1e-3, 1e-4) for a, b in zip(loop, same, strict=True))
        except (RuntimeError, ValueError, UserWarning):  # no batching rule, a branch on data, the slow path
            return False


@torch.enable_grad()
def try_backward(network: Network, x: Any) -> bool:
    few = tree_map(lambda t: torch.cat([t[:2], t[:2]])[:2], x)
    params = {name: (1.01 * p + 0.01).requires_grad_() for name, p in network.weights().items()}

    def gradients(f: Any) -> list[Tensor]:
        total = sum(t.sum() for t in tree_flatten(f)[0] if isinstance(t, Tensor) and t.requires_grad)
        return (
            [] if isinstance(total, int) else list(torch.autograd.grad(total, list(params.values()), allow_unused=True))
        )

    try:
        with Noise(device=network.like.device).scope():
            after = gradients(network.call({**params, **network.statistics()}, few, training=True))
        with Noise(device=network.like.device).scope():
            inside = network.within({**params, **network.statistics()}, few, gradients)
    except (RuntimeError, ValueError):  # a network that cannot be trained says so when it is
        return False
    return not all(torch.allclose(a, b, 1e-3, 1e-5) for a, b in zip(after, inside, strict=True) if a is not None)


def count_bytes(network: Network, x: Any, moved: Collection[str]) -> tuple[int, int]:
    """Of the outputs of all modules on one row: of those that were called before one with a moved parameter of its own, and of the others.
    Where such a one is not called as a module (its parent reads its weights), none counts as before."""
    tensors = {**dict(network.net.named_parameters()), **dict(network.net.named_buffers())}
    wanted = {id(tensors[name]) for name in moved if name in tensors}  # by identity, for a weight may be tied
    met: set[int] = set()
    parts = [0, 0]

    def enter(module: nn.Module, _args: Any) -> None:
        own = (*module._parameters.values(), *module._buffers.values())
        met.update(id(t) for t in own if id(t) in wanted)

    def count(_module: nn.Module, _args: Any, output: Any) -> None:
        size = sum(t.numel() * t.element_size() for t in tree_flatten(output)[0] if isinstance(t, Tensor))
        parts[bool(met) or not wanted] += size

    hooks = [module.register_forward_pre_hook(enter) for module in network.net.modules()]
    hooks += [module.register_forward_hook(count) for module in network.net.modules()]
    try:
        network.call({}, tree_map(lambda t: t[:1], x))
    finally:
        for hook in hooks:
            hook.remove()
    before, after = parts if met == wanted else (0, sum(parts))
    return before, max(after, 1)


def room(device: torch.device) -> int:
    """Bytes of activations for one call: a GPU wants many at a time, and may have a lot of memory."""
    if device.type != "cuda":
        return BUDGET
    return max(16 * BUDGET, torch.cuda.get_device_properties(device).total_memory // 32)


def few(x: Any, n: int) -> Any:
    """n rows, the first ones again and again where there are fewer."""
    return tree_map(lambda t: t[torch.arange(n, device=t.device) % len(t)], x)


def expect_finite(x: Any) -> None:
    """A hole in the inputs is said, not predicted."""
    for leaf in tree_flatten(x)[0]:
        if leaf.is_floating_point() and not bool(leaf.sum().isfinite()) and not bool(leaf.isfinite().all()):
            bad = (~leaf.isfinite()).nonzero()
            got = f"{len(bad)} NaN or infinite cells, first at {tuple(bad[0].tolist())}"
            raise InputError("inputs must be finite", got, "drop or impute these rows first")


def rows(x: Any) -> int:
    leaves = tree_flatten(x)[0]
    if not leaves or not all(isinstance(leaf, Tensor) and leaf.dim() for leaf in leaves):
        raise InputError("inputs must be tensors with a first axis of points", type(x).__name__, "use torch.as_tensor")
    return len(leaves[0])
