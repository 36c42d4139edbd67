"""A compressed network: small, dense, plain, and as many bytes as it says."""

from __future__ import annotations

import copy
import os
from typing import Any, final

import torch
from torch import Tensor, nn

from nescio.compression.content import SPREAD, Content, decode
from nescio.compression.modules import put, resized
from nescio.compression.precision import Levels
from nescio.errors import FileError, UnsupportedError
from nescio.families.approximation import Approximation
from nescio.families.independent import Gaussian
from nescio.families.mean_field import MeanField
from nescio.laws import Normal
from nescio.model import Model
from nescio.network import Params
from nescio.posterior.variational import Variational
from nescio.predictive import Predictive
from nescio.store.atomic import disk_error, file_name, replace_file

NARROW = 1e-12  # standard deviation of a number that has none
MOST = 1 << 30  # bytes of a file


@final
class Compressed:
    """`net`: the small network, with the weights as they are stored. `content`: the file. `info`: what was done.

    small = compress(posterior, x[:2])
    small.save("digits.nscz")
    again = load_compressed("digits.nscz", model)
    """

    def __init__(self, model: Model, content: bytes, info: dict[str, Any], name: str = "the content") -> None:
        self.content, self.info = content, info
        self.whole = model
        held = decode(model, content, name)
        self.held = held
        try:
            self.net = rebuilt(model.network.net, held)
        except (ValueError, RuntimeError) as error:
            raise FileError(
                f"{name} must fit the network", str(error).splitlines()[0], "build the same model"
            ) from None

    def __repr__(self) -> str:
        kept, all_ = self.count(), sum(p.numel() for p in self.whole.network.net.parameters())
        return f"Compressed({kept:,} of {all_:,} numbers, {self.bytes:,} bytes, {self.rate:.1f} x smaller)"

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return len(self.content)

    @property
    def rate(self) -> float:
        """How many times smaller than the network's parameters in single precision."""
        return 4 * sum(p.numel() for p in self.whole.network.net.parameters()) / self.bytes

    def count(self) -> int:
        """Numbers of the small network that are not zero."""
        return sum(int((p != 0).sum()) for p in self.net.parameters())

    def kept(self) -> dict[str, tuple[int, int]]:
        """(numbers that are not zero, numbers of the large network) of each tensor."""
        small = dict(self.net.named_parameters())
        return {
            name: (int((small[name] != 0).sum()), p.numel()) for name, p in self.whole.network.net.named_parameters()
        }

    def bits(self) -> dict[str, int]:
        """The fixed width that the numbers of each tensor would need without the entropy coder."""
        return {name: t.bits() for name, t in self.held.tensors.items() if isinstance(t, Levels)}

    def architecture(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of each layer that has them."""
        shapes = {name: p.shape for name, p in self.net.named_parameters() if name.endswith("weight") and p.dim() > 1}
        return {name.rpartition(".")[0]: (shape[1], shape[0]) for name, shape in shapes.items()}

    def predict(self, x: Any, draws: int = 100, seed: int = 0) -> Predictive:
        """By draws where the spread was kept, else by the weights as they are."""
        if self.held.spreads:
            return self.posterior().predict(x, draws, seed)
        model = Model(self.net, Normal(0.0, 1.0), self.whole.likelihood)
        own = {**model.network.weights(), **model.network.statistics()}
        named = {name: t[None] for name, t in own.items()}
        return model.predictive(
            {**named, **{f"likelihood.{n}": t[None].to(model.network.like) for n, t in self.held.numbers.items()}}, x
        )

    def posterior(self) -> Variational:
        """Independent Gaussians over the small network's weights, as wide as they were, to the nearest eighth of a factor of two."""
        if not self.held.spreads:
            must, got = "the spread of the weights must have been kept", "a network of means"
            raise UnsupportedError(must, got, "compress(posterior, x, spread=True)")
        model = Model(self.net, Normal(0.0, 1.0), self.whole.likelihood)
        given = model.network.weights() | {f"likelihood.{n}": t for n, t in self.held.numbers.items()}
        theta = model.prior.at(given, model.noise(0, "start"))
        free = torch.ones(model.dim, dtype=torch.bool, device=theta.device)
        q = Approximation(MeanField(), model.prior, free, theta)
        with torch.no_grad():
            for factor in q.parts():
                assert isinstance(factor, Gaussian)
                sd = self.sd(factor.blocks[0].name, factor.loc).clamp_min(NARROW)
                factor.rho.copy_(sd + torch.log(-torch.expm1(-sd)))
        return Variational(model, q, model.network.statistics(), {"compressed": self.bytes})

    def sd(self, name: str, like: Tensor) -> Tensor:
        spread, held = self.held.spreads.get(name), self.held.tensors.get(name)
        if spread is None or not isinstance(held, Levels):
            return torch.zeros_like(like)
        return torch.where(held.level != 0, torch.exp2(spread.double() / SPREAD), 0.0).to(like)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Replaces the file as a whole or not at all."""
        replace_file(path, [memoryview(self.content)], len(self.content), self._verify)

    def _verify(self, path: str) -> None:
        if read(path) != self.content:
            raise FileError("the file must read back as written", "other bytes", "check the disk")


def load_compressed(path: str | os.PathLike[str], model: Model) -> Compressed:
    """What `Compressed.save` wrote, into the model whose posterior was compressed (its weights do not matter)."""
    return Compressed(model, read(path), {}, os.fspath(path))


def read(path: str | os.PathLike[str]) -> bytes:
    name = file_name(path)
    try:
        if os.path.getsize(name) > MOST:
            raise FileError(f"{name} must be a compressed network", "more than a gigabyte", "pass another file")
        with open(name, "rb") as file:
            return file.read(MOST + 1)
    except OSError as error:
        raise disk_error("the file must be read", error, name) from error


def rebuilt(net: nn.Module, held: Content) -> nn.Module:
    """A network of these tensors, smaller where they are."""
    small = copy.deepcopy(net)
    like = next(p for p in net.parameters() if p.is_floating_point())
    by_path: dict[str, Params] = {}
    for name, tensor in held.tensors.items():
        path, _, leaf = name.rpartition(".")
        value = tensor.value() if isinstance(tensor, Levels) else tensor
        by_path.setdefault(path, {})[leaf] = value.to(
            like.device, like.dtype if value.is_floating_point() else value.dtype
        )
    for path, tensors in by_path.items():
        module = net.get_submodule(path)
        pick = held.picks.get(path)
        if not path:  # the network is one layer, or has tensors of its own
            if list(module.children()):
                same(small, tensors)
                continue
            return resized(module, tensors, None if pick is None else pick[0].to(like.device)).eval()
        if list(module.children()):
            same(small.get_submodule(path), tensors)
            continue
        made = resized(module, tensors, None if pick is None else pick[0].to(like.device))
        for name, old in module.named_parameters(recurse=False):
            getattr(made, name).requires_grad_(old.requires_grad)
        put(small, path, made)
    return small.eval()


def same(module: nn.Module, tensors: Params) -> None:
    """Tensors of a module that has others inside keep their sizes."""
    own = dict(module.named_parameters(recurse=False)) | dict(module.named_buffers(recurse=False))
    with torch.no_grad():
        for name, tensor in tensors.items():
            if own[name].shape != tensor.shape:
                raise ValueError(f"a tensor {name!r} of another shape")
            own[name].copy_(tensor)
