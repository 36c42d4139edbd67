"""The derivative of a network's outputs by its weights, at fixed weights and example by example, for any network.

One pass forward with every weight watched, one pass back with as many columns as are wanted; never the derivative by the weights
themselves, which follows from both ends of each call. A weight that is used in a way which no call explains (it was transposed or
normalised before it met an example) is differentiated through the whole network, one example at a time: slow, and right.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from nescio.jacobian.calls import CONVOLUTIONS, Axes, Linear, axes, linear
from nescio.jacobian.local import local, pulled, strict
from nescio.jacobian.lookup import Lookup, looked
from nescio.jacobian.pieces import Outer, Piece, Plain
from nescio.jacobian.watch import Call, Log, Watched
from nescio.network import Network, Params, rows


@final
class Jacobian:
    """`params`: everything the network is called with. `index`: for each weight that counts, its places in a flat vector, -1 for
    those of its numbers that do not."""

    def __init__(self, network: Network, params: Params, index: dict[str, Tensor], x: Any) -> None:
        self.network, self.params = network, params
        self.index = {name: place.reshape(-1).to(network.like.device) for name, place in index.items()}
        self.loose: set[str] = set()  # used in a way that no call explains
        self.batched = True
        self.joined: dict[tuple[str, ...], Tensor] = {}  # places of a matrix and its bias, row by row
        self.axes: list[Axes] = []
        self.plan(x)

    def forward(self, x: Any) -> Pass:
        log = Log()
        own = {name: Watched.of(name, self.params[name], log) for name in self.index if name not in self.loose}
        with torch.enable_grad():
            f = self.network.call({**self.params, **own}, x)
        return Pass(self, x, f, log.calls)

    def places(self, names: tuple[str, ...], outputs: int) -> Tensor:
        """Of the weights of a linear map, as one matrix with so many rows."""
        if names not in self.joined:
            self.joined[names] = torch.cat([self.index[name].view(outputs, -1) for name in names], 1).reshape(-1)
        return self.joined[names]

    def plan(self, x: Any) -> None:
        """What every call is, from passes of two and of three examples."""
        while True:
            two, three = (self.forward(some(x, n)).calls for n in (2, 3))
            alike = [a.function is b.function and a.names == b.names for a, b in zip(two, three, strict=False)]
            if len(two) != len(three) or not all(alike):  # a network that counts its examples
                self.loose = set(self.index)
                continue
            found = [axes(a, b) for a, b in zip(two, three, strict=True)]
            unclear = {name for call, where in zip(two, found, strict=True) if where is None for name in call.names}
            self.axes = [where for where in found if where is not None]
            if not unclear:
                return
            self.loose |= unclear


@final
class Pass:
    """One pass: the outputs f of some examples, ready to be pulled back."""

    def __init__(self, jacobian: Jacobian, x: Any, f: Any, calls: list[Call]) -> None:
        self.jacobian, self.x, self.f, self.calls = jacobian, x, f, calls
        self.outputs: list[Tensor] = tree_flatten(f)[0]

    def pieces(self, columns: Sequence[Tensor]) -> list[Piece]:
        """For columns (K, *output) at each of the outputs; no weight is in two pieces."""
        jacobian, found = self.jacobian, []
        taps = [tap for call in self.calls for tap in call.outputs]
        back = iter(self.back(taps, columns))
        graph = any(column.requires_grad for column in columns)  # then what comes back depends on what they do
        grads = [[next(back) if graph else next(back).detach() for _ in call.outputs] for call in self.calls]
        for names, members in self.groups():
            maps = [linear(self.calls[i], jacobian.axes[i]) for i in members]
            firsts = [m for m in maps if m is not None]
            if len(firsts) == len(maps) and len({(m.weight, m.bias) for m in firsts}) == 1:
                found.append(self.outer(firsts, [grads[i][0] for i in members], members))
            elif len(names) == 1 and all(looked(self.calls[i], jacobian.axes[i]) for i in members):
                found.append(self.table(names[0], [grads[i][0] for i in members], members))
            else:
                summed: Params = {}
                for i in members:
                    for name, x in local(self.calls[i], jacobian.axes[i], grads[i]).items():
                        summed[name] = summed[name] + x if name in summed else x
                found.append(self.plain({name: summed[name] for name in names}))
        every = found + self.through(columns)
        return [piece.some() if bool((piece.index < 0).any()) else piece for piece in every]

    def shapes(self) -> list[tuple[int, ...]]:
        """How the weights act, for estimates: (outputs, inputs) as a matrix, (rows, columns, 1) as a table, (size,) else."""
        params, found = self.jacobian.params, []
        free = {name: int((place >= 0).sum()) for name, place in self.jacobian.index.items()}
        for names, members in self.groups():
            shape = max((params[name].shape for name in names), key=len)
            used = {self.calls[i].function for i in members}
            if any(free[name] < params[name].numel() for name in names):
                found.append((sum(free[name] for name in names),))
            elif used <= {torch.nn.functional.linear, *CONVOLUTIONS} and len(names) <= 2:
                found.append((shape[0], prod(shape[1:]) + len(names) - 1))
            elif used == {torch.nn.functional.embedding}:
                found.append((shape[0], shape[1], 1))
            else:
                found.append((sum(params[name].numel() for name in names),))
        return found + [(free[name],) for name in sorted(self.jacobian.loose)]

    def back(self, taps: list[Tensor], columns: Sequence[Tensor]) -> list[Tensor]:
        if not taps or not any(f.requires_grad for f in self.outputs):
            return [tap.new_zeros(len(columns[0]), *tap.shape) for tap in taps]
        if self.jacobian.batched:
            try:
                with strict():
                    return pulled(self.outputs, taps, columns, batched=True)
            except (RuntimeError, UserWarning):
                self.jacobian.batched = False
        return pulled(self.outputs, taps, columns, batched=False)

    def groups(self) -> list[tuple[list[str], list[int]]]:
        """Weights that meet in a call, and the calls; a weight that is used twice ties their partners together."""
        groups: list[tuple[list[str], list[int]]] = []
        for i, call in enumerate(self.calls):
            names, members = list(dict.fromkeys(call.names)), [i]
            for group in [g for g in groups if set(g[0]) & set(names)]:
                groups.remove(group)
                names, members = list(dict.fromkeys(group[0] + names)), group[1] + members
            groups.append((names, members))
        return groups

    def outer(self, maps: list[Linear], grads: list[Tensor], members: list[int]) -> Outer:
        first, gs = maps[0], []
        for g, i in zip(grads, members, strict=True):
            axis = self.jacobian.axes[i].outputs[0]
            assert axis is not None
            g = g.movedim(axis + 1, 1)  # (K, N, ...)
            if self.calls[i].function is not torch.nn.functional.linear:
                g = g.movedim(2, -1)  # channels last
            gs.append(g.reshape(*g.shape[:2], -1, g.shape[-1]))
        seen = torch.cat([m.seen for m in maps], 1) if len(maps) > 1 else first.seen
        g = torch.cat(gs, 2) if len(gs) > 1 else gs[0]
        names = tuple(name for name in (first.weight, first.bias) if name is not None)
        return Outer(self.jacobian.places(names, g.shape[-1]), seen, g, first.bias is not None)

    def table(self, name: str, grads: list[Tensor], members: list[int]) -> Lookup:
        tokens, gs, skipped = [], [], None
        for g, i in zip(grads, members, strict=True):
            where = self.jacobian.axes[i]
            call, axis = looked(self.calls[i], where), where.outputs[0]
            assert call is not None and axis is not None
            g = g.movedim(axis + 1, 1)  # (K, N, ..., columns)
            gs.append(g.reshape(*g.shape[:2], -1, g.shape[-1]))
            tokens.append(call.tokens)
            skipped = call.skipped
        return Lookup.of(self.jacobian.index[name], torch.cat(tokens, 1), torch.cat(gs, 2), skipped)

    def plain(self, by_name: Params) -> Plain:
        index = torch.cat([self.jacobian.index[name] for name in by_name])
        return Plain(index, torch.cat([x.flatten(2) for x in by_name.values()], -1))

    def through(self, columns: Sequence[Tensor]) -> list[Piece]:
        """Through the whole network, example by example, for the weights that are left; each a piece."""
        jacobian = self.jacobian
        own = {name: jacobian.params[name].detach().requires_grad_() for name in sorted(jacobian.loose)}
        if not own:
            return []
        each = []
        for n in range(rows(self.x)):
            with torch.enable_grad():
                f = jacobian.network.call({**jacobian.params, **own}, tree_map(lambda t, n=n: t[n : n + 1], self.x))
            each.append(
                pulled(tree_flatten(f)[0], list(own.values()), [c[:, n : n + 1] for c in columns], batched=False)
            )
        return [self.plain({name: torch.stack([row[i] for row in each], 1)}) for i, name in enumerate(own)]


def some(x: Any, n: int) -> Any:
    """n rows, again from the first where there are fewer."""
    return tree_map(lambda t: t[torch.arange(n, device=t.device) % len(t)], x)
