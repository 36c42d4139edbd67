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

import torch
from torch import Tensor, nn

from nescio.compression.coder import Decoder, Encoder
from nescio.compression.flow import CONVS
from nescio.compression.precision import Levels
from nescio.compression.tensor_code import put_floats, put_tensor, take_floats, take_tensor
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
