"""Faults in the code in C, each with the check that sees it (tests/test_native.py). All checks are exact but for rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import test_native as checks
import torch
from fault import Fault

from nescio.native import chainwise, graph, indexed, loops, pending, products, program, translate, write
from nescio.native.chainwise import Chainwise
from nescio.native.program import Program

Plant = Callable[[pytest.MonkeyPatch], None]
PRELUDE = chainwise.PRELUDE.read_text()
FOLDER = TemporaryDirectory()


def text(before: str, after: str) -> Plant:
    """Other words in what the code calls."""
    assert before in PRELUDE

    def plant(patch: pytest.MonkeyPatch) -> None:
        path = Path(FOLDER.name, f"{abs(hash(after))}.h")
        path.write_text(PRELUDE.replace(before, after))
        patch.setattr(chainwise, "PRELUDE", path)

    return plant


def setting(module: Any, name: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(module, name, value)


def entry(table: dict[str, Any], name: str, value: Any) -> Plant:
    return lambda patch: patch.setitem(table, name, value)


def stored_row_by_row(patch: pytest.MonkeyPatch) -> None:
    """A column's second vector comes after the next column's first, and writes over it."""
    start = PRELUDE.index("for (int j = 0; j < N; j++) /*")
    before = PRELUDE[start : PRELUDE.index("sum[i][j];", start)]
    first, second = "for (int j = 0; j < N; j++)", "for (int i = 0; i < M * PER; i++)"
    after = before.replace(first, "FIRST").replace(second, first).replace("FIRST", second)
    text(before, after)(patch)


def writes_come_early(patch: pytest.MonkeyPatch) -> None:
    """A write does not wait for what was to be read before it."""
    patch.setattr(Program, "flush_all", lambda self: None)


def copies_are_views(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(graph, "IDENTITIES", {*graph.IDENTITIES, "clone"})
    patch.setattr(graph, "mutates", lambda node: False)


def nothing_left_over(patch: pytest.MonkeyPatch) -> None:
    """The last tile of a product, narrower than the others, is missing."""
    strips = products.strips
    patch.setattr(products, "strips", lambda length, most: strips(length, most)[:1])


def chains_go_on(patch: pytest.MonkeyPatch) -> None:
    true = write.text
    patch.setattr(chainwise, "text", lambda program, shared, given, fed, until: true(program, shared, given, fed, None))


def single_precision(patch: pytest.MonkeyPatch) -> None:
    """Long sums, number after number as they come."""
    patch.setattr(program, "MANY", 10**9)
    patch.setattr(loops.Pass, "pragma", lambda self: [])


def places_overlap(patch: pytest.MonkeyPatch) -> None:
    """What is still needed is written over: a buffer is given up a step too early."""
    arranged = write.arranged

    def broken(before: Any, body: Any) -> int:
        room = arranged(before, body)
        own = [b for step in body for b in step.buffers if not b.argument and not b.invariant]
        for buffer in own:
            buffer.offset = own[0].offset
        return room + max((b.bytes for b in own), default=0)

    patch.setattr(write, "arranged", broken)


def results_one_after_another(patch: pytest.MonkeyPatch) -> None:
    """The second result reads what the first has just replaced."""

    def broken(self: Program, results: Any) -> None:
        values = [self.value(x) for x in results]
        self.flush_all()
        self.results = values

    patch.setattr(Program, "finish", broken)


def one_core_takes_all_but_the_last(patch: pytest.MonkeyPatch) -> None:
    some = Chainwise.some
    patch.setattr(Chainwise, "some", lambda self, tables, a, b, times: some(self, tables, a, max(a, b - 1), times))


def norm_without_root(patch: pytest.MonkeyPatch) -> None:
    folded = Program.folded
    patch.setattr(
        Program, "folded", lambda self, node, kind, x, dims, after="{self}": folded(self, node, kind, x, dims)
    )


def check_unary(name: str) -> None:
    checks.test_functions_of_one_number(name, torch.float32)


def check_binary(name: str) -> None:
    checks.test_functions_of_two_numbers(name, torch.float32)


def check_products() -> None:
    for seed in range(6):
        checks.test_products_of_every_shape(seed, torch.float64)


def check_narrow() -> None:
    with pytest.MonkeyPatch.context() as patch:
        for seed in range(4):
            checks.test_products_where_vectors_are_narrow(seed, 32, patch)


def check_dots() -> None:
    with pytest.MonkeyPatch.context() as patch:
        checks.test_products_that_are_few_long_sums(torch.float64, patch)


def check_indices() -> None:
    try:
        checks.test_an_index_that_is_not_there_is_an_error()
    except pytest.fail.Exception as error:  # no assertion, for pytest
        raise AssertionError(str(error)) from error


def check_sums() -> None:
    checks.test_reductions((1,))


logarithms = partial(checks.test_logarithms_and_exponentials_to_the_last_digits, torch.float32)
largest = partial(checks.test_the_largest_of_numbers_that_are_none_is_none, "amax")
networks = partial(checks.test_gradients_of_random_networks, 24)
early = checks.test_what_was_read_before_a_write_stays
FAULTS = [
    Fault("C: a coefficient of exp", text("8.3334519073e-3f", "8.5e-3f"), logarithms),
    Fault("C: a coefficient of log", text("3.3333331174e-1f", "3.3333731174e-1f"), logarithms),
    Fault("C: log1p of small numbers by log", text("d == 0.0f ? x : log_f32(u) * (x / d)", "log_f32(u)"), logarithms),
    Fault(
        "C: NaN ends in softplus",
        text("z > threshold ? threshold : z", "z < threshold ? z : threshold"),
        partial(check_unary, "softplus"),
    ),
    Fault(
        "C: the slope of tanh",
        entry(
            translate.RULES,
            "tanh_backward",
            lambda program, node, given: given["grad_output"] and program.value(given["grad_output"]),
        ),
        networks,
    ),
    Fault(
        "C: subtraction turned round",
        entry(translate.template.__globals__["ELEMENTWISE"], "sub", "({other} - {alpha} * {self})"),
        partial(check_binary, "sub"),
    ),
    Fault(
        "C: maximum loses NaN",
        entry(translate.template.__globals__["ELEMENTWISE"], "maximum", "({self} > {other} ? {self} : {other})"),
        partial(check_binary, "maximum"),
    ),
    Fault("C: long sums in single precision", single_precision, checks.test_a_long_sum_of_single_numbers_is_right),
    Fault(
        "C: a largest number that is at least 0",
        entry(pending.FOLDS, "amax", ("0", *pending.FOLDS["amax"][1:])),
        check_sums,
    ),
    Fault("C: NaN is lost among the lanes", text("(b) > (a) || (b) != (b)", "(b) > (a)"), largest),
    Fault("C: columns stored row by row", stored_row_by_row, check_narrow),
    Fault("C: a norm without its root", norm_without_root, check_sums),
    Fault("C: tiles that are left over", nothing_left_over, check_products),
    Fault(
        "C: dot products without the rest of a vector",
        text("for (long p = whole; p < k; p++) total", "for (long p = k; p < k; p++) total"),
        check_dots,
    ),
    Fault(
        "C: triangular systems by the wrong half",
        text("upper ? i + 1 : 0", "upper ? i : 0"),
        checks.test_triangular_systems,
    ),
    Fault("C: negative indices", text("i < 0 ? i + n : i", "i < 0 ? 0 : i"), checks.test_views_and_pieces),
    Fault("C: negative indices where there are none", text("i < 0 || i >= n", "i < -n || i >= n"), check_indices),
    Fault(
        "C: an index too large",
        text("i < 0 || i >= n", "i < 0 || i > n"),
        check_indices,
    ),
    Fault(
        "C: what is added to one place twice",
        setting(indexed, "filled", lambda program, into, given: into),
        checks.test_numbers_that_are_gathered_and_scattered,
    ),
    Fault("C: a write before a read", writes_come_early, early),
    Fault("C: a copy that is a view", copies_are_views, early),
    Fault("C: chains go on after their end", chains_go_on, checks.test_each_chain_goes_on_as_long_as_it_is_told),
    Fault("C: results that read each other", results_one_after_another, checks.test_results_may_change_places),
    Fault("C: numbers in one place", places_overlap, networks),
    Fault("C: the last chain of a core", one_core_takes_all_but_the_last, check_products),
]
