"""Nested states of tensors and numbers, taken apart into named tensors and plain JSON, and put together again to the bit.

The structure is a list of nodes in the order in which they are met, each before its children, so that it stays flat however
deep the state is. It names no class: a NamedTuple is made from the template's own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from nescio.errors import FileError, InputError
from nescio.store.seal import CODES, bytes_of, fault

_MOST_LEVELS = 100
# Stored as bytes: these have no name in the file format, and neither have values that are not finite.
_OTHERS = (torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64)
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (*CODES, *_OTHERS)}


def flatten(state: object) -> tuple[dict[str, Tensor], list[object]]:
    """Tensors by name, and the structure that `unflatten` needs. The tensors are not copied; each is stored in full.

    Takes dict (keys str or int), list, tuple, NamedTuple, Tensor, int, float, bool, str and None.
    """
    tensors: dict[str, Tensor] = {}
    structure: list[object] = []
    _take_apart(state, (), tensors, structure)
    return tensors, structure


def _take_apart(state: Any, path: tuple[str, ...], tensors: dict[str, Tensor], nodes: list[object]) -> None:
    if len(path) > _MOST_LEVELS:
        raise InputError(f"a state must be at most {_MOST_LEVELS} deep", "a deeper one", "check that it is no circle")
    children: list[tuple[object, object]] = []
    if isinstance(state, Tensor):
        name = "/".join((str(len(tensors)), *path))  # numbered, since a key may contain a stroke
        tensors[name], node = _plain(state, name)
        nodes.append(node)
    elif state is None or type(state) in (bool, int, str):
        nodes.append(state)
    elif type(state) is float:
        nodes.append(["float", state.hex()])
    elif type(state) in (dict, OrderedDict):
        bad = [key for key in state if type(key) not in (str, int)]
        if bad:
            raise InputError("keys of a state must be str or int", type(bad[0]).__name__, "use another key")
        nodes.append(["dict", list(state)])
        children = list(state.items())
    elif type(state) in (list, tuple):
        nodes.append([type(state).__name__, len(state)])
        children = list(enumerate(state))
    elif isinstance(state, tuple) and hasattr(state, "_fields"):
        fields: tuple[str, ...] = state._fields
        nodes.append(["named", list(fields)])
        children = list(zip(fields, state, strict=True))
    else:
        where = "/".join(path) or "the top"
        remedy = "use tensors, int, float, bool, str, None, and dict, list, tuple or NamedTuple of them"
        raise InputError("a state must be plain", f"{type(state).__name__} at {where}", remedy)
    for key, child in children:
        _take_apart(child, (*path, str(key)), tensors, nodes)


def _plain(tensor: Tensor, name: str) -> tuple[Tensor, list[object]]:
    """A tensor that can be written as it is, and its node; one that cannot goes as its bytes."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided or tensor.is_meta or (tensor.dtype in CODES and fault(tensor) is None):
        return tensor, ["tensor", name]  # the writer says what is wrong with it, if anything
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in _DTYPES:
        raise InputError(f"dtype must be one of {', '.join(_DTYPES)}", f"{kind} at {name!r}", "convert it first")
    whole = tensor.resolve_conj().resolve_neg().contiguous()
    return bytes_of(whole), ["bytes", name, kind, list(tensor.shape)]


def unflatten(tensors: dict[str, Tensor], structure: object, like: object = None) -> Any:
    """The state again. `like` is a state of the same form: its NamedTuples are the pattern, its devices the place."""
    if not isinstance(structure, list):
        raise _unfit("no list of nodes")
    nodes = iter(structure)
    try:
        state = _put_together(nodes, tensors, like, 0)
    except (LookupError, TypeError, ArithmeticError, ValueError, RuntimeError, StopIteration) as error:
        if isinstance(error, (InputError, FileError)):
            raise
        raise _unfit(f"{type(error).__name__} while it was read") from error
    if next(nodes, nodes) is not nodes:
        raise _unfit("nodes left over")
    return state


def _put_together(nodes: Iterator[Any], tensors: dict[str, Tensor], like: Any, level: int) -> Any:
    node = next(nodes)
    if node is None or isinstance(node, (bool, int, str)):
        return node
    kind, what = node[0], node[1]
    if kind == "float":
        return float.fromhex(what)
    if kind in ("tensor", "bytes"):
        tensor = tensors[what]
        if kind == "bytes":
            tensor = tensor.view(_DTYPES[node[2]]).reshape(node[3])
        return tensor.to(like.device) if isinstance(like, Tensor) else tensor
    if level >= _MOST_LEVELS:
        raise _unfit("too many levels")
    if kind == "dict":
        of = like if isinstance(like, dict) else {}
        return {key: _put_together(nodes, tensors, of.get(key), level + 1) for key in what}
    if kind == "named":
        fields = getattr(like, "_fields", None)
        if fields is None:
            raise InputError(
                "a NamedTuple must have one in its place in `like`", type(like).__name__, "pass a first state"
            )
        if list(fields) != what:
            raise _unfit(f"fields {', '.join(map(str, what))} where the template has {', '.join(fields)}")
        return type(like)._make([_put_together(nodes, tensors, own, level + 1) for own in like])
    if kind not in ("list", "tuple"):
        raise _unfit("an unknown node")
    # A longer list goes on like the last item of the template.
    of = list(like) if isinstance(like, (list, tuple)) and like else [None]
    items = [_put_together(nodes, tensors, of[min(i, len(of) - 1)], level + 1) for i in range(what)]
    return items if kind == "list" else tuple(items)


def _unfit(got: str) -> FileError:
    return FileError("the structure must be one of `flatten`, and fit the template", got, "use what wrote it")
