"""Functions of tensors as machine code, made when a shape is first met.

On the CPU small networks become C of our own (native/), a chain at a time, and others one C++ function by torch's compiler; on a GPU
kernels are recorded as one CUDA graph (machine.py). A version is compared with the plain function before it is trusted; where a function
cannot be compiled, or the machine has no compiler, the plain one is used and `note` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from nescio.machine import FEW, Function, Version, looped, machine_code, replayed
from nescio.native import Chainwise, Unsupported
from nescio.noise import untouched
from nescio.rounding import agree

VERSIONS = 12  # shapes of which code is kept; beyond, something varies that should not


@final
class Compiled:
    """`function(*chains, *others, *drawn)` -> tensors; few chains may be padded to many, so that one version serves both.

    `draws`: what makes the random numbers of a call, in their order; then there are always as many chains. `refused`: why it is not to
    be called at all. `compiler`: without it torch's own is left alone, and on a GPU the kernels of the plain function are recorded.
    """

    def __init__(
        self,
        function: Function,
        draws: Sequence[Callable[[], Tensor]] = (),
        refused: str | None = None,
        compiler: bool = True,
    ) -> None:
        self.function, self.draws, self.refused, self.compiler = function, draws, refused, compiler
        self.versions: dict[Any, Version] = {}
        self.alone: dict[Any, Chainwise | None] = {}  # code for one chain at a time
        self.width = 0
        self.note = refused
        self.left: str | None = None  # why there is no code of our own

    @property
    def made(self) -> set[str]:
        """By what, so far: the numbers of a run are the same to the last bit as long as this is."""
        own = {"C"} if any(code is not None for code in self.alone.values()) else set()
        return own | ({"plain"} if self.note is not None else {"a compiler"} if self.versions else set())

    def __call__(
        self, chains: Sequence[Tensor], others: Sequence[Tensor], times: int | None = None, until: int | None = None
    ) -> tuple[Tensor, ...]:
        """`chains`: what has a leading axis of chains; so has every result. `others`: what all of them share.
        `times`: so often, the results of one call in the place of the first arguments of the next. `until`: that result is true of
        chains that go on; where few do, the others may wait for a call of their own. Not on a GPU, whose turns are all made."""
        if not len(chains[0]):
            return looped(self.function, until)([*chains, *others, *(draw() for draw in self.draws)], times or 1)
        own = self.chainwise(chains, others, times is not None, until)
        if own is not None:
            return own(chains, others, times or 1)
        if not chains[0].is_cuda:
            chains = [x.contiguous() for x in chains]  # as code was made for; what is written into is so anyway
        rows = len(chains[0])
        self.width = max(self.width, rows)
        width = self.width
        while width >= FEW * rows:  # few of many chains are left: a narrower version, but not one for every number
            width //= FEW
        if width > rows:
            padding = torch.arange(width, device=chains[0].device).clamp_(max=rows - 1)
            chains = [x[padding] for x in chains]
        inputs = [*chains, *others, *(draw() for draw in self.draws)]
        key = (times is None, *(x.shape for x in inputs))
        version = self.versions.get(key)
        if version is None:
            with untouched(inputs[0].device):  # a run that is resumed makes its code at another step
                version = self.versions[key] = self.make(inputs, times is not None, until)
        out = version(inputs, times or 1)
        return out if width == rows else tuple(x[:rows] for x in out)

    def chainwise(
        self, chains: Sequence[Tensor], others: Sequence[Tensor], fed: bool, until: int | None
    ) -> Chainwise | None:
        """Code of our own, for however many chains; None where it cannot be made, or would not be right."""
        if chains[0].device.type != "cpu":
            return None
        if self.draws:
            self.left = "random numbers are drawn inside"
            return None
        key = (fed, until, *((x.dtype, x.shape[1:]) for x in chains), *((x.dtype, x.shape) for x in others))
        if key not in self.alone:
            with untouched(chains[0].device):
                self.alone[key] = self.make_chainwise(chains, others, fed, until)
        return self.alone[key]

    def make_chainwise(
        self, chains: Sequence[Tensor], others: Sequence[Tensor], fed: bool, until: int | None
    ) -> Chainwise | None:
        try:
            if len(self.alone) >= VERSIONS:
                raise Unsupported(f"shapes vary: code was made for {VERSIONS} of them")
            code = Chainwise(self.function, chains, others, fed, until)
            eps = next(torch.finfo(x.dtype).eps for x in chains if x.is_floating_point())
            own = len(chains)
            confirm(lambda x, times: code(x[:own], x[own:], times), self.function, [*chains, *others], eps)
        except Exception as error:  # left to torch's compiler, or plain
            self.left = said(error)
            return None
        return code

    def make(self, inputs: Sequence[Tensor], fed: bool, until: int | None) -> Version:
        """Code for these shapes, or the plain function."""
        if len(self.versions) + sum(code is not None for code in self.alone.values()) >= VERSIONS:
            self.note = f"shapes vary: code was made for {VERSIONS} of them"
            return looped(self.function, until)
        if not self.compiler and not inputs[0].is_cuda:
            self.note = self.left
            return looped(self.function, until)
        try:
            version, eps = (machine_code if self.compiler else replayed)(self.function, inputs, fed, until)
            confirm(version, self.function, inputs, eps)
        except Exception as error:  # a compiler may fail in any way: the plain function never does
            self.note = said(error)
            return looped(self.function, until)
        return version


def confirm(code: Version, function: Function, inputs: Sequence[Tensor], eps: float) -> None:
    """Raises unless the code gives what the function gives, to rounding."""

    def plain(inputs: Sequence[Tensor]) -> list[Tensor]:
        return tried(lambda given, times: function(*given), inputs)

    got, wanted = tried(code, inputs), plain(inputs)
    if agree(got, wanted, eps):
        return
    if not agree(got, wanted, eps, plain(shaken(inputs, eps))):
        raise ArithmeticError("compiled and plain results differ")


def shaken(inputs: Sequence[Tensor], eps: float) -> list[Tensor]:
    """Each number a digit up or down."""
    coin = torch.Generator().manual_seed(0)

    def digit(x: Tensor) -> Tensor:
        signs = 2 * torch.randint(2, x.shape, generator=coin).to(x) - 1
        return x * (1 + eps * signs)

    return [digit(x) if x.is_floating_point() else x for x in inputs]


def tried(code: Version, inputs: Sequence[Tensor]) -> list[Tensor]:
    """What it gives, and what it left in what it was given; not counting random numbers that it draws."""
    own = inputs if inputs[0].is_cuda else [x.clone() for x in inputs]
    with untouched(own[0].device):
        return [*code(own, 1), *own]


def said(error: Exception) -> str:
    """In one line."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
