"""Expressions as text: they read back as what they were written from, mistakes show their place, and no text can do anything else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nescio.errors import InputError, NescioError, UnsupportedError
from nescio.expressions import catalogue, likelihood, method, net, prior, spell
from nescio.infer import HMC, MAP, MCLMC, VI, Laplace
from nescio.infer.curvature import kfac
from nescio.laws import HalfCauchy, Horseshoe, Learned, Normal, SpikeSlab, fan_in
from nescio.likelihoods import Gaussian, Heteroscedastic

METHODS = [
    "5 * MAP()",
    "8 * (MAP(hold_out=0.1) >> MCLMC(energy_variance=0.1))",
    "2 * (3 * MAP())",
    "MAP() >> (HMC() >> NUTS())",
    "MAP() >> HMC() >> NUTS()",
    "(MAP() >> HMC()).on('2.*')",
    "MAP() >> Laplace(structure=low_rank(5))",
    "MAP(optimizer=partial(SGD, momentum=0.9), schedule=Steps((0.5, 0.75), 0.2))",
    "VI(family=InverseCDF(distributions.Laplace))",
    "VI(family=BernoulliDropout(0.2), optimizer=AdamW)",
    "SGLD(step_size=Cycles(1e-06, 3))",
]
LAWS = [
    "Normal(0.0, HalfCauchy(1.0).per('input'))",
    "Normal(0, Learned(0.5).per('layer'))",
    "Normal(0.0, InverseGamma(2.0, 1.0).sqrt())",
    "SpikeSlab(0.3, 2.0)",
    "{'0.*': Normal(0, fan_in), '*': Laplace(0, 2)}",
    "Correlated(((1.0, 0.5), (0.5, 1.0)), 0.0, 1.0)",
    "Discrete((-1.0, 0.0, 1.0), (0.25, 0.5, 0.25))",
]


@pytest.mark.parametrize("text", METHODS)
def test_methods_read_back(text: str) -> None:
    assert spell(method(text)) == text
    assert repr(method(spell(method(text)))) == repr(method(text))


@pytest.mark.parametrize("text", LAWS)
def test_laws_read_back(text: str) -> None:
    assert spell(prior(text)) == text


@pytest.mark.parametrize(
    "law", [Normal(0.0, HalfCauchy(1.0).per("input")), Normal(0, Learned(0.5).per("net")), Horseshoe(0.1)]
)
def test_the_repr_of_a_law_is_an_expression(law: Normal) -> None:
    assert repr(prior(repr(law))) == repr(law)


def test_they_are_the_librarys_own_values() -> None:
    assert method("8 * (MAP() >> MCLMC())") == 8 * (MAP() >> MCLMC())
    assert method("4 * HMC(draws=10).on('0.*')") == 4 * HMC(draws=10).on("0.*")
    assert method("Laplace(kfac)") == Laplace(kfac) and method("VI()") == VI()
    assert repr(prior("SpikeSlab(.5, 1.)")) == repr(SpikeSlab(0.5, 1.0))
    assert prior("Normal(0, fan_in)").scale is fan_in
    assert isinstance(likelihood("Heteroscedastic()"), Heteroscedastic)
    assert repr(likelihood("Gaussian(Learned(1/2))")) == repr(Gaussian(Learned(0.5)))
    layers = net("mlp(inputs, 2 * inputs, outputs, activation=nn.Tanh)", inputs=3, outputs=2)
    assert layers[0].weight.shape == (6, 3) and isinstance(layers[1], torch.nn.Tanh)


def test_every_entry_has_a_line() -> None:
    for room in ("methods", "families", "laws", "likelihoods", "nets"):
        assert catalogue()[room]
        for entry in catalogue()[room].values():
            assert len(entry.line) > 3, entry.name


WRONG = {  # text: the column it points at, and what it must say
    "8 * (MPA() >> MCLMC())": (6, "did you mean MAP"),
    "MAP(epoch=3)": (5, "did you mean epochs"),
    "MAP(epochs='x')": (12, "a whole number"),
    "MAP(epochs=True)": (12, "a whole number"),
    "5 * MAP(epochs=0)": (5, "must be positive"),
    "MAP": (1, "must be called"),
    "MAP() >> 3": (1, "a >> b"),
    "MAP() * 3": (1, "n * a"),
    "0 * MAP()": (1, "at least 1"),
    "MAP(schedule=Cosine)": (14, "schedule of MAP"),
    "MAP(optimizer=Cosine)": (15, "optimizer of MAP"),
    "MAP().run()": (1, ".on, .then, .repeat"),
    "MAP(": (4, "never closed"),
    "MAP(1, 2, 3, 4, 5, 6, 7, 8)": (1, "too many"),
    "os.system('x')": (1, "a name must be known"),
    "MAP(lr=1e999)": (8, "numbers"),
    "ä * MAP()": (1, "a name must be known"),
    "2 * MÄP()": (5, "a name must be known"),
    "": (1, "an expression"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_shows_its_place(text: str) -> None:
    column, said = WRONG[text]
    with pytest.raises(InputError) as caught:
        method(text)
    message = str(caught.value)
    assert f"column {column} of" in message and said in message and "\n" not in message


@pytest.mark.parametrize(
    "text",
    [
        *(
            "__import__('os').system('x')",
            "().__class__.__bases__",
            "MAP().__init__()",
            "MAP.__subclasses__()",
            "open('x')",
        ),
        *(
            "[MAP() for _ in range(9)]",
            "(lambda: MAP())()",
            "MAP() if 1 else 2",
            "f'{1}'",
            "MAP()[0]",
            "x := 3",
            "MAP(**{})",
        ),
        *(
            "9 ** 9 ** 9",
            "'a' * 10 ** 9",
            "partial(open, 'x')",
            "partial(MAP)",
            "Then(3, 4)",
            "exec('1')",
            "1 / 0",
            "-MAP()",
        ),
    ],
)
def test_nothing_but_the_catalogue(text: str) -> None:
    with pytest.raises(NescioError):
        method(text)


def test_what_is_in_no_catalogue_cannot_be_written() -> None:
    with pytest.raises(UnsupportedError, match="catalogue"):
        spell(MAP(schedule=lambda t: 1.0))
    with pytest.raises(InputError, match="a likelihood must come out"):
        likelihood("Normal(0, 1)")
    with pytest.raises(InputError, match="patterns must be text"):
        prior("{1: Normal(0, 1)}")


NAMES = "MAP HMC VI Laplace kfac partial SGD per on 'input' Normal Learned lambda __class__ None True epochs nn.Tanh mlp inputs é if"
WORDS = st.sampled_from([*"()[]{},.:=*>+-/ '\"\\\n\0", ">>", "1", "0.5", "1e999", "9" * 40, *NAMES.split()])


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=14).map("".join))
@example("(" * 1500)
@example("-" * 1500 + "1")
@example("\0")
def test_any_text_is_read_or_refused(text: str) -> None:
    """No other exception, no warning, and the message is one line."""
    before = set(sys.modules)
    for read in (method, prior, likelihood, lambda t: net(t, inputs=2, outputs=1)):
        try:
            read(text)
        except NescioError as error:
            assert "\n" not in str(error)
    assert not {name for name in set(sys.modules) - before if name in ("os", "subprocess")}


def method_trees() -> st.SearchStrategy:
    leaf = st.one_of(
        st.builds(MAP, epochs=st.integers(1, 9), lr=st.floats(1e-4, 1.0), hold_out=st.sampled_from([0.0, 0.1])),
        st.builds(MCLMC, draws=st.integers(1, 9), energy_variance=st.floats(1e-3, 1.0)),
        st.builds(HMC, leapfrog=st.integers(1, 30), dense=st.booleans(), thin=st.integers(1, 3)),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a >> b, inner, inner),
            st.builds(lambda n, a: n * a, st.integers(1, 9), inner),
            st.builds(lambda a: a.on("0.*"), inner),
        ),
        max_leaves=5,
    )


@settings(max_examples=60, deadline=None)
@given(method_trees())
def test_any_method_reads_back(value: MAP) -> None:
    assert method(spell(value)) == value


def test_no_code_is_run() -> None:
    """The reader's own source calls nothing that could."""
    from nescio.expressions import reader

    calls = {
        ast.unparse(n.func) for n in ast.walk(ast.parse(Path(reader.__file__).read_text())) if isinstance(n, ast.Call)
    }
    assert not calls & {"eval", "exec", "compile", "__import__", "globals", "import_module"}
