"""Keyed random streams: every random number is a pure function of (seed, stream, block of chains, step).

A key is hashed into the seed of a fresh `torch.Generator`, so a run that is resumed at step t draws what the
uninterrupted run would have drawn, and no two streams share numbers. Nothing here touches the global generator for longer than a
`scope()`, which restores it.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nescio.errors import InputError


@dataclass(frozen=True)
class Noise:
    """A stream of random numbers, named by its key. `noise.at("epoch", 3)` is the stream below it."""

    seed: int = 0
    key: tuple[str | int, ...] = ()
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if type(self.seed) is not int:  # numpy's 3 is 3
            try:
                object.__setattr__(self, "seed", int(operator.index(self.seed)))
            except TypeError as error:
                raise InputError("a seed must be a whole number", repr(self.seed), "use for instance seed=0") from error

    def at(self, *key: str | int) -> Noise:
        return Noise(self.seed, self.key + key, self.device, self.dtype)

    def to(self, device: torch.device, dtype: torch.dtype) -> Noise:
        return replace(self, device=device, dtype=dtype)

    def number(self) -> int:
        """The 63-bit seed that the key stands for."""
        digest = hashlib.blake2b(repr((self.seed, self.key)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def fraction(self) -> float:
        """One uniform number in [0, 1), from the key alone: no generator, and nobody waits for a GPU to tell."""
        return (self.number() >> 10) / 2**53

    def generator(self) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(self.number())

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator(), device=self.device, dtype=self.dtype)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator(), device=self.device, dtype=self.dtype)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Uniform on low, ..., high - 1."""
        return torch.randint(low, high, shape, generator=self.generator(), device=self.device)

    def permutations(self, rows: int, n: int) -> Tensor:
        """Independent permutations of range(n), one a row: (rows, n)."""
        generator = self.generator()
        return torch.stack([torch.randperm(n, generator=generator, device=self.device) for _ in range(rows)])

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Code that draws from torch's global generator draws from this stream inside, and leaves no trace after."""
        with untouched(self.device) as generators:
            for generator in generators:
                generator.manual_seed(self.number())
            yield


@contextmanager
def untouched(device: torch.device) -> Iterator[list[torch.Generator]]:
    """The global generators of the CPU and of this device, which are afterwards as they were, whatever is drawn inside."""
    # not torch.manual_seed and fork_rng: without CUDA they record a traceback at every call
    generators = [torch.default_generator]
    if device.type == "cuda":
        torch.cuda.init()
        generators.append(torch.cuda.default_generators[device.index or 0])
    before = [generator.get_state() for generator in generators]
    try:
        yield generators
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
