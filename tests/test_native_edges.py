"""Corners of our own code that random programs found: no chains, shared memory, several threads, odd compilers, odd numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from nescio.compiled import Compiled
from nescio.native import Chainwise, Unsupported
from nescio.native.build import compiler
from nescio.noise import Noise

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler here")


def normal(*shape: int) -> Tensor:
    return Noise(0).normal(*shape)


def test_code_is_not_made_of_no_chains() -> None:
    """Traced for none, every size in it would be 0, whoever came after."""
    w, x = normal(5, 3), normal(3, 5)
    code = Compiled(lambda x: (x @ w,), compiler=False)
    assert code([x[:0]], [])[0].shape == (0, 3)
    torch.testing.assert_close(code([x], [])[0], x @ w)
    assert Compiled(lambda x: (2 * x,), compiler=False)([x[:0]], [], times=3)[0].shape == (0, 5)
    with pytest.raises(Unsupported, match="no chain"):
        Chainwise(lambda x: (x @ w,), [x[:0]], [], False, None)


def clamped(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = x @ w
    y.view(len(x), -1).clamp_(max=10.0)
    return (y + 0,)


def flattened(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = x.mT.contiguous()
    y.flatten(1).clamp_(max=10.0)
    return (y + w,)


@pytest.mark.parametrize("function", [clamped, flattened])
def test_a_write_through_a_view_is_not_lost(function: Callable[..., Any]) -> None:
    """On the first inputs it writes nothing, so comparing would not show it."""
    a, b = 0.1 * torch.ones(2, 5, 5), torch.ones(2, 5, 5)
    code = Compiled(function, compiler=False)
    code([a, b], [])
    torch.testing.assert_close(code([100 * a, b], [])[0], function(100 * a, b)[0])


def test_what_is_written_is_the_copy() -> None:
    """A function that writes into a clone leaves its argument as it was, and one may be given that cannot be written to."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x.clone()
        y.add_(1)
        return (y,)

    for x in (normal(1, 4).expand(3, 4), normal(4, 3).requires_grad_().T):
        before, code = x.detach().clone(), Compiled(function, compiler=False)
        assert torch.equal(code([x], [])[0], before + 1) and torch.equal(x, before)
        assert code.made == {"C"}


def test_what_is_given_twice_is_one() -> None:
    def function(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        a.add_(1)
        return (b * 2,)

    x = torch.zeros(3, 2).T
    (got,) = Chainwise(function, [x, x], [], False, None)([x, x], [], 1)
    assert torch.equal(got, torch.full((2, 3), 2.0)) and torch.equal(x, torch.ones(2, 3))


def out_of_place(a: Tensor) -> tuple[Tensor, ...]:
    c = a * 0
    torch.add(a, 5, out=c)
    return c, a * 1


INTEGERS = torch.arange(6).reshape(2, 3)
REFUSED: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "out=": (out_of_place, [normal(2, 3)]),
    "power of whole numbers": (lambda n: (n**4,), [INTEGERS]),
    "floor of whole numbers": (lambda n: (n.floor(),), [INTEGERS]),
    "int32 on the way": (lambda x: (x.int().float() * 2,), [normal(2, 3)]),
    "half on the way": (lambda x: (x.half().float(),), [normal(2, 3)]),
    "None": (lambda x: (None,), [normal(2, 3)]),
    "a number": (lambda x: (3,), [normal(2, 3)]),
    "an index into a number": (lambda x, i: (x.sum().gather(0, i[0, 0]),), [normal(2, 3), torch.zeros(2, 1).long()]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_in_the_repertoire_says_so(name: str) -> None:
    function, inputs = REFUSED[name]
    with pytest.raises(Unsupported):
        Chainwise(function, inputs, [], False, None)


def test_shifts_by_any_number_are_those_of_torch() -> None:
    n, by = torch.tensor([[5, -5, 1, -1]] * 2), torch.tensor([[1, 63, 64, -3]] * 2)

    def function(n: Tensor, by: Tensor) -> tuple[Tensor, ...]:
        return n << by, n >> by, n >> 2, n << 3

    for got, wanted in zip(Chainwise(function, [n, by], [], False, None)([n, by], [], 1), function(n, by), strict=True):
        assert torch.equal(got, wanted)


def test_small_whole_numbers_wrap_as_they_do_in_torch() -> None:
    u = torch.tensor([[[200], [100]]] * 2, dtype=torch.uint8)

    def function(u: Tensor) -> tuple[Tensor, ...]:
        return ((u[:, :, 0] * u[:, :, 0]).clone(),)

    assert torch.equal(Compiled(function, compiler=False)([u], [])[0], function(u)[0])


def test_threads_that_trace_at_once_do_not_disturb_each_other() -> None:
    make_fx(lambda x: x.sin())(torch.ones(2))
    before, notes = nn.Module.__call__, []

    def work(size: int) -> None:
        for k in range(3):
            code = Compiled(lambda x: (x.tanh().sum(1),), compiler=False)
            code([normal(3, size + k)], [])
            notes.append(code.note)

    threads = [threading.Thread(target=work, args=(4 + 3 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert notes == [None] * 12 and nn.Module.__call__ is before


@pytest.mark.parametrize(("cc", "said"), [("gcc '", "No closing quotation"), ("true", "cannot be loaded")])
def test_odd_compilers_are_refused(cc: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", cc)
    number = float(len(cc)) + 0.25  # code that nobody has made before
    with pytest.raises(Unsupported, match=said):
        Chainwise(lambda x: (x * number,), [normal(2, 3)], [], False, None)


def test_a_compiler_may_speak_any_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compiler()
    assert found is not None
    cc = tmp_path / "cc"
    cc.write_text(f"#!/bin/sh\nprintf 'avertiss\\351ment\\n' >&2\nexec {found[0]} \"$@\"\n")
    cc.chmod(0o755)
    monkeypatch.setenv("CC", str(cc))
    code = Compiled(lambda x: (x.tanh() + 0.125,), compiler=False)
    code([normal(3, 2)], [])
    assert code.made == {"C"}


def test_code_that_would_take_long_is_not_begun() -> None:
    """Functions that are written out where they are called count for what they are."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x
        for i in range(150):
            y = F.softplus(torch.logaddexp(y, x * (i + 1)))
        return (y,)

    with pytest.raises(Unsupported, match="compiling would take long"):
        Chainwise(function, [normal(1, 40)], [], False, None)
