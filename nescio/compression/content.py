"""The compressed file: every tensor of the small network in one stream of coded decisions, and a seal.

    4 bytes  "nscz"     1 byte  version     4 bytes  which network     the stream     8 bytes  SHA-256 of all before

Names and kinds of layers are not stored: a file is read into the network that it was made from, which says what comes next and how large
it may be. No number in the file is believed before it is checked against that network, and no file names code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nescio.compression.coder import Decoder, Encoder
from nescio.compression.flow import CONVS
from nescio.compression.precision import Levels
from nescio.errors import FileError
from nescio.model import Model
from nescio.network import Params

MAGIC, VERSION, SEAL = b"nscz", 1, 8
SPREAD = 4  # levels of a standard deviation for each factor of two


class Content(NamedTuple):
    """`tensors`: those of the small network, by name, as levels or as they are; `picks`: by the path of a layer, which of how many inputs.

    `spreads`: logarithms of standard deviations to base two, in quarters, where a level is not zero; empty if they are not kept.
    """

    tensors: dict[str, Levels | Tensor]
    picks: dict[str, tuple[Tensor, int]]
    spreads: dict[str, Tensor]
    numbers: Params


def encode(model: Model, content: Content) -> bytes:
    """The whole file."""
    out = Encoder()
    out.bit(int(bool(content.spreads)))
    for path, module, own, bias in layers(model.network.net):
        pick = content.picks.get(path)
        if isinstance(module, nn.Linear):
            out.bit(int(pick is not None), out.at("picks"))
            if pick is not None:
                out.count(pick[1], "incoming")
                chosen = torch.zeros(pick[1], dtype=torch.bool).index_fill_(0, pick[0].cpu(), True).tolist()
                before = (0, 0)
                for one in chosen:
                    out.bit(int(one), out.at("pick", before))
                    before = (before[1], int(one))
        if bias:
            out.bit(int(f"{path}.bias" in content.tensors), out.at("new bias"))
        for name, old in {**own, **({f"{path}.bias": None} if bias else {})}.items():
            if name in content.tensors:
                put_tensor(out, content.tensors[name], old, content.spreads.get(name), bool(content.spreads))
    for value in content.numbers.values():
        put_floats(out, value)
    body = MAGIC + bytes([VERSION]) + fingerprint(model) + out.finish()
    return body + hashlib.sha256(body).digest()[:SEAL]


def decode(model: Model, content: bytes, name: str) -> Content:
    """What `encode` was given; a FileError says what is wrong with the bytes. `name`: of the file, for that."""
    if len(content) < 9 + SEAL or not content.startswith(MAGIC):
        raise FileError(f"{name} must be a compressed network", "another kind of file", "write it with Compressed.save")
    body, seal = content[:-SEAL], content[-SEAL:]
    if hashlib.sha256(body).digest()[:SEAL] != seal:
        raise FileError(f"{name} must be whole", "a damaged or cut file", "copy or write it again")
    if body[4] != VERSION:
        raise FileError(f"{name} must be of version {VERSION}", f"version {body[4]}", "use a newer nescio")
    if body[5:9] != fingerprint(model):
        raise FileError(f"{name} must belong to this network", "one of another network", "build the same model")
    try:
        return take(model, Decoder(body[9:]))
    except (ValueError, OverflowError) as error:
        raise FileError(f"{name} must hold a network", str(error), "write it again with nescio") from None


def take(model: Model, given: Decoder) -> Content:
    tensors: dict[str, Levels | Tensor] = {}
    picks: dict[str, tuple[Tensor, int]] = {}
    spreads: dict[str, Tensor] = {}
    with_spreads = bool(given.bit())
    for path, module, own, bias in layers(model.network.net):
        if isinstance(module, nn.Linear) and given.bit(given.at("picks")):
            incoming = given.count("incoming")
            if incoming > module.in_features:
                raise ValueError("more inputs than a layer has")
            chosen, before = [], (0, 0)
            for _ in range(incoming):
                chosen.append(given.bit(given.at("pick", before)))
                before = (before[1], chosen[-1])
            picks[path] = torch.tensor(chosen).nonzero()[:, 0], incoming
        new = {f"{path}.bias": None} if bias and given.bit(given.at("new bias")) else {}
        for name, old in {**own, **new}.items():
            most = old if old is not None else torch.zeros(len(own[f"{path}.weight"]))
            tensors[name], spread = take_tensor(given, most, old is None, with_spreads)
            if spread is not None:
                spreads[name] = spread
    shapes = {site.name: site.shape for group in model.prior.groups for site in group.sites}
    numbers = {name: shapes[f"likelihood.{name}"] for name in model.likelihood.numbers()}
    return Content(tensors, picks, spreads, {name: take_floats(given, shape) for name, shape in numbers.items()})


# ---- one tensor ----------------------------------------------------------------------------------------------------------


def put_tensor(out: Encoder, tensor: Levels | Tensor, old: Tensor | None, spread: Tensor | None, spreads: bool) -> None:
    shape = tensor.level.shape if isinstance(tensor, Levels) else tensor.shape
    for axis, size in enumerate(shape):
        same = old is not None and old.shape[axis] == size
        out.bit(int(same), out.at("same size"))
        if not same:
            out.count(size, "size")
    out.bit(int(isinstance(tensor, Levels)), out.at("levels"))
    if not isinstance(tensor, Levels):
        put_raw(out, tensor)
        return
    flat = tensor.level.reshape(-1).tolist()
    out.bit(int(tensor.book is not None), out.at("book"))
    if tensor.book is None:
        put_floats(out, torch.tensor([tensor.step]))
        out.signed(flat, "levels", len(shape) > 1)
    else:
        out.count(len(tensor.book), "book size")
        put_floats(out, tensor.book[1:])
        width = max(1, (len(tensor.book) - 1).bit_length())
        for level in flat:
            put_symbol(out, level, width)
    if spreads:
        out.bit(int(spread is not None), out.at("spread"))
        if spread is not None:
            values = spread.reshape(-1)[tensor.level.reshape(-1) != 0]
            base = int(values.double().median()) if len(values) else 0
            out.signed([base], "spread base")
            out.signed((values - base).tolist(), "spread")


def take_tensor(given: Decoder, most: Tensor, new: bool, spreads: bool) -> tuple[Levels | Tensor, Tensor | None]:
    shape = []
    for size in most.shape:
        if new or not given.bit(given.at("same size")):
            if new and given.bit(given.at("same size")):
                raise ValueError("a new tensor with an old size")
            shape.append(given.count("size"))
            if not 0 < shape[-1] <= size:
                raise ValueError("a tensor larger than that of the network, or empty")
        else:
            shape.append(size)
    if not given.bit(given.at("levels")):
        return take_raw(given, most.dtype, shape), None
    n = int(np.prod(shape)) if shape else 1
    if given.bit(given.at("book")):
        size = given.count("book size")
        if not 1 < size <= 4096:
            raise ValueError("a codebook of a size that is none")
        book = torch.cat([torch.zeros(1), take_floats(given, (size - 1,))])
        width = max(1, (size - 1).bit_length())
        level = torch.tensor([take_symbol(given, width) for _ in range(n)], dtype=torch.long).view(shape)
        if n and int(level.max()) >= size:
            raise ValueError("a level that the codebook does not have")
        found = Levels(level, 0.0, book)
    else:
        step = float(take_floats(given, (1,)))
        level = torch.tensor(given.signed(n, "levels", len(shape) > 1), dtype=torch.long).view(shape)
        found = Levels(level, step, None)
        if not bool(found.value().isfinite().all()):
            raise ValueError("a weight that is not finite")
    spread = None
    if spreads and given.bit(given.at("spread")):
        some = (level.reshape(-1) != 0).nonzero()[:, 0]
        base = given.signed(1, "spread base")[0]
        spread = torch.zeros(n, dtype=torch.long)
        spread[some] = torch.tensor(given.signed(len(some), "spread"), dtype=torch.long) + base
        if n and int(spread.abs().max()) > 1000:
            raise ValueError("a standard deviation beyond all measure")
        spread = spread.view(shape)
    return found, spread


def put_symbol(out: Encoder, symbol: int, width: int) -> None:
    """One of 2^width, digit by digit, each by those before it."""
    node = 1
    for i in reversed(range(width)):
        digit = symbol >> i & 1
        out.bit(digit, out.at("symbol", width, node))
        node = node << 1 | digit


def take_symbol(given: Decoder, width: int) -> int:
    node = 1
    for _ in range(width):
        node = node << 1 | given.bit(given.at("symbol", width, node))
    return node - (1 << width)


def put_floats(out: Encoder, x: Tensor) -> None:
    for number in x.detach().cpu().float().reshape(-1).numpy().view(np.uint32).tolist():
        out.bits(number, 32)


def take_floats(given: Decoder, shape: tuple[int, ...] | list[int]) -> Tensor:
    n = int(np.prod(shape)) if len(shape) else 1
    words = np.array([given.bits(32) for _ in range(n)], dtype=np.uint32)
    found = torch.from_numpy(words.view(np.float32).copy()).view(list(shape))
    if not bool(found.isfinite().all()):
        raise ValueError("a number that is not finite")
    return found


def put_raw(out: Encoder, x: Tensor) -> None:
    if x.is_floating_point():
        put_floats(out, x)
        return
    for number in x.detach().cpu().long().reshape(-1).tolist():
        out.bits(number & 2**64 - 1, 64)


def take_raw(given: Decoder, dtype: torch.dtype, shape: list[int]) -> Tensor:
    if dtype.is_floating_point:
        return take_floats(given, shape)
    n = int(np.prod(shape)) if shape else 1
    words = np.array([given.bits(64) for _ in range(n)], dtype=np.uint64)
    return torch.from_numpy(words.view(np.int64).copy()).view(shape).to(dtype)


# ---- the network ---------------------------------------------------------------------------------------------------------


def layers(net: nn.Module) -> Iterator[tuple[str, nn.Module, dict[str, Tensor], bool]]:
    """(path, module, its tensors by name, whether a bias may be new), in the order of the network."""
    for path, module in net.named_modules():
        prefix = f"{path}." if path else ""
        own = {prefix + name: p for name, p in module.named_parameters(recurse=False)}
        hidden = module._non_persistent_buffers_set
        own |= {prefix + name: b for name, b in module.named_buffers(recurse=False) if name not in hidden}
        if own:
            yield path, module, own, isinstance(module, (nn.Linear, *CONVS)) and module.bias is None


def fingerprint(model: Model) -> bytes:
    """Which network and likelihood."""
    told = model.describe()
    text = json.dumps([told["net"], told["shapes"], told["likelihood"]])
    return hashlib.sha256(text.encode()).digest()[:4]
