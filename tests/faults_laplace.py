"""Planted faults of Laplace and what it is made of: the ones that libraries were found with. Each is caught by a check of
tests/test_linalg.py, tests/test_curvature.py or tests/test_laplace.py."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import test_curvature as curved
import test_laplace as proof
import test_linalg as algebra
import torch
from fault import Fault
from torch import Tensor
from torch.nn import functional as F

from nescio import links
from nescio.infer import laplace
from nescio.infer.curvature import columns, full, kfac, sweep
from nescio.infer.curvature import prior as prior_part
from nescio.infer.curvature.kfac import Block
from nescio.jacobian import calls, jacobian, lookup, pieces, quadratic, unrolled
from nescio.linalg import Dense, Diag, Kron, Operator, Spectral, kron, operator
from nescio.marginal import mode as marginal

kfac_file, full_file = (import_module(f"nescio.infer.curvature.{name}") for name in ("kfac", "full"))

Plant = Callable[[pytest.MonkeyPatch], None]


def root_transposed(m: pytest.MonkeyPatch) -> None:
    """L for Lᵀ in draws."""
    m.setattr(Dense, "root", lambda self, z: self.lower.mT @ z)


def kron_transposed(m: pytest.MonkeyPatch) -> None:
    """right ⊗ left."""
    true = kron.both

    def wrong(left: Tensor, right: Tensor, x: Tensor) -> Tensor:
        return true(right, left, x)

    m.setattr(kron, "both", wrong)


def half_log_volume(m: pytest.MonkeyPatch) -> None:
    """The prior missing in the log determinant of a sum of products."""
    m.setattr(Spectral, "logdet", lambda self: self.values.log().sum())


def variance_for_root(m: pytest.MonkeyPatch) -> None:
    m.setattr(Diag, "root", lambda self, z: operator.along(self.values, z))


def slope_of_a_product(m: pytest.MonkeyPatch) -> None:
    """Free numbers treated as the product that they happen to be."""
    true = kron.as_product

    def plus(self: Kron, other: Operator) -> Operator | None:
        return None if isinstance(other, Kron) else self + true(other, len(self.left), len(self.right))  # type: ignore[operator]

    before = Kron.plus
    m.setattr(Kron, "plus", lambda self, other: before(self, other) if isinstance(other, Kron) else plus(self, other))


def mean_over_data(m: pytest.MonkeyPatch) -> None:
    """Curvature of the mean loss."""
    true = sweep.Sweep.pulled

    def wrong(self: Any, forward: Any, y: Any, noise: Any) -> Any:
        for part in true(self, forward, y, noise):
            for piece in part.pieces:
                name = "g" if isinstance(piece, pieces.Outer) else "rows"
                object.__setattr__(piece, name, getattr(piece, name) / self.source.size**0.5)
            yield part

    m.setattr(sweep.Sweep, "pulled", wrong)


def twice_too_large(m: pytest.MonkeyPatch) -> None:
    """The factor of squared error without its ½."""
    true = columns.information

    def wrong(observed: Any) -> Any:
        known = true(observed)
        return None if known is None else [(eta, 2**0.5 * root) for eta, root in known]

    m.setattr(columns, "information", wrong)


def kfac_without_n(m: pytest.MonkeyPatch) -> None:
    """Both factors summed over the data."""
    true = Block.operator

    def wrong(self: Block) -> Operator:
        found = true(self)
        return found.times(self.met) if isinstance(found, Kron) else found

    m.setattr(Block, "operator", wrong)


def factors_swapped(m: pytest.MonkeyPatch) -> None:
    true = Block.operator

    def wrong(self: Block) -> Operator:
        found = true(self)
        return Kron(found.right, found.left) if isinstance(found, Kron) else found

    m.setattr(Block, "operator", wrong)


def half_of_the_gram(m: pytest.MonkeyPatch) -> None:
    def wrong(rows: Tensor) -> Tensor:
        return (rows.mT @ rows).diagonal().diag()

    m.setattr(kfac_file, "gram", wrong)


def bias_dropped(m: pytest.MonkeyPatch) -> None:
    """Nothing where a bias sees a one."""

    def wrong(self: pieces.Outer) -> Tensor:
        return torch.cat([self.seen, torch.zeros_like(self.seen[..., :1])], -1) if self.biased else self.seen

    m.setattr(pieces.Outer, "a", property(wrong))


def bias_apart(m: pytest.MonkeyPatch) -> None:
    """Inputs taken to be zero on average: no products of an input and the one that the bias sees."""
    true = Block.operator

    def wrong(self: Block) -> Operator:
        self.sums[-1][:-1, -1] = 0
        return true(self)

    m.setattr(Block, "operator", wrong)


def positions_one_by_one(m: pytest.MonkeyPatch) -> None:
    """Squares of the positions summed, not the square of their sum."""

    def wrong(self: pieces.Outer) -> Tensor:
        g, a = self.g.flatten(1, 2), self.a.flatten(0, 1)
        return (g.square().sum(0).mT @ a.square()).reshape(-1)

    m.setattr(pieces.Outer, "square", wrong)


def only_the_first_use(m: pytest.MonkeyPatch) -> None:
    """A tied weight as if it were used once."""
    true = jacobian.Pass.outer

    def wrong(self: Any, maps: Any, grads: Any, members: Any) -> Any:
        return true(self, maps[:1], grads[:1], members[:1])

    m.setattr(jacobian.Pass, "outer", wrong)


def kernel_flipped(m: pytest.MonkeyPatch) -> None:
    """Patches as kernel x channels."""
    true = calls.patches
    m.setattr(calls, "patches", lambda *args: true(*args).flip(-1))


def softmax_without_root(m: pytest.MonkeyPatch) -> None:
    """p for √p."""
    true = columns.chances
    m.setattr(columns, "chances", lambda p: true(p.square()))


def last_class_left_out(m: pytest.MonkeyPatch) -> None:
    """A column for each class but the last, as if it could be told from the others."""
    m.setattr(columns, "chances", lambda p: torch.diag_embed(p.sqrt()).movedim(-2, 0)[:-1])


def scale_without_information(m: pytest.MonkeyPatch) -> None:
    """A heteroscedastic head taken for a homoscedastic one."""
    true = columns.information
    m.setattr(columns, "information", lambda observed: (true(observed) or [])[:1] or None)


def gate_order(m: pytest.MonkeyPatch) -> None:
    """i, g, f, o."""

    def wrong(x: Tensor, h: Tensor, c: Tensor, weights: Any) -> Any:
        w, u, b, d = weights
        outs = []
        for step in F.linear(x, w, b):
            i, g, f, o = (step + F.linear(h, u, d)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outs.append(h)
        return torch.stack(outs), (h, c)

    m.setattr(unrolled, "one_way", wrong)


def prior_times(factor: float) -> Plant:
    def plant(m: pytest.MonkeyPatch) -> None:
        true = prior_part.precision

        def wrong(prior: Any, theta: Tensor, slots: Tensor) -> Operator:
            return true(prior, theta, slots).times(factor)

        m.setattr(laplace, "precision", wrong)
        m.setattr(marginal, "precision", wrong)

    return plant


def prior_scale_for_variance(m: pytest.MonkeyPatch) -> None:
    true = prior_part.curvature
    m.setattr(prior_part, "curvature", lambda *args: true(*args).sqrt())


def covariance_not_inverted(m: pytest.MonkeyPatch) -> None:
    m.setattr(Dense, "inverse", lambda self: self)
    m.setattr(Spectral, "inverse", lambda self: self)


def whole_log_determinant(m: pytest.MonkeyPatch) -> None:
    """½ missing before the log determinant."""
    true = Dense.logdet
    m.setattr(Dense, "logdet", lambda self: 2 * true(self))


def evidence_without_dimensions(m: pytest.MonkeyPatch) -> None:
    true = marginal.evidence

    def wrong(posterior: Any, numbers: Any = None, data: Any = None) -> Tensor:
        return true(posterior, numbers, data) - 0.5 * len(posterior.slots) * 1.8378770664093453

    m.setattr(proof, "evidence", wrong)


def fixed_weights_in_the_evidence(m: pytest.MonkeyPatch) -> None:
    """The prior of what is held fixed counted in."""

    def wrong(prior: Any, theta: Tensor, slots: Tensor) -> Tensor:
        point = prior.unpack(prior.pack(theta, centred=True), centred=True)
        return point.log_density - point.log_jacobian

    m.setattr(marginal, "log_prior", wrong)


def sd_for_variance_of_functions(m: pytest.MonkeyPatch) -> None:
    true = quadratic.each
    m.setattr(quadratic, "each", lambda found, covariance: true(found, covariance).abs().sqrt())


def inverse_not_transposed(m: pytest.MonkeyPatch) -> None:
    """X for X^-ᵀ when functions are turned into the basis of the covariance."""
    m.setattr(
        pieces.Outer, "turned", lambda self, left, right: pieces.Outer(self.index, self.a @ right.mT, self.g @ left.mT)
    )


def bridge_with_the_root(m: pytest.MonkeyPatch) -> None:
    """Standard deviations for variances."""
    true = links.Bridge.predictive

    def wrong(self: Any, kind: Any, logits: Tensor, covariance: Tensor, noise: Any) -> Any:
        return true(self, kind, logits, covariance.sign() * covariance.abs().sqrt(), noise)

    m.setattr(links.Bridge, "predictive", wrong)


def products_in_single(m: pytest.MonkeyPatch) -> None:
    true = full_file.product
    m.setattr(
        full_file,
        "product",
        lambda one, two: true(*(pieces.Outer(p.index, p.a.float(), p.g.float()) for p in (one, two))).double(),
    )


def words_met_twice(m: pytest.MonkeyPatch) -> None:
    """A word that an example meets twice as two words."""

    def wrong(index: Tensor, tokens: Tensor, g: Tensor, skipped: int | None) -> Any:
        return lookup.Lookup(index, tokens, g, torch.ones_like(tokens, dtype=torch.bool))

    m.setattr(lookup.Lookup, "of", staticmethod(wrong))


def words_not_counted(m: pytest.MonkeyPatch) -> None:
    """Every row of a table as if it were met equally often."""
    true = Block.operator

    def wrong(self: Block) -> Operator:
        found = true(self)
        even = isinstance(found, Kron) and found.left.dim() == 1
        return Kron(torch.full_like(found.left, 1 / len(found.left)), found.right) if even else found

    m.setattr(Block, "operator", wrong)


def hessian_for_gauss_newton(m: pytest.MonkeyPatch) -> None:
    m.setattr(full_file, "gauss_newton", full_file.second)


def contract(*names: str) -> Callable[[], None]:
    return lambda: [algebra.check_contract(name) for name in names] and None


def layers(*names: str) -> Callable[[], None]:
    return lambda: curved.check_layers(names)


FAULTS: list[Fault] = [
    Fault("linalg: L transposed in draws", root_transposed, contract("Dense")),
    Fault("linalg: Kronecker factors in the other order", kron_transposed, algebra.check_structures_stay),
    Fault("linalg: prior missing in the log determinant of Kronecker sums", half_log_volume, contract("Kron + Kron")),
    Fault("linalg: variance for its root", variance_for_root, contract("Diag")),
    Fault("linalg: slope of free numbers as of a product", slope_of_a_product, algebra.check_slope_at_a_product),
    Fault("curvature: a mean over data", mean_over_data, curved.check_sums),
    Fault("curvature: twice too large", twice_too_large, layers("mlp")),
    Fault("curvature: both KFAC factors summed over data", kfac_without_n, curved.check_kfac_exact),
    Fault("curvature: KFAC factors swapped", factors_swapped, curved.check_kfac_exact),
    Fault("curvature: only the diagonal of a factor", half_of_the_gram, curved.check_kfac_exact),
    Fault("curvature: bias dropped", bias_dropped, layers("linear")),
    Fault("curvature: bias apart from the inputs", bias_apart, curved.check_kfac_exact),
    Fault("curvature: positions one by one", positions_one_by_one, layers("on tokens")),
    Fault("curvature: a tied weight used once", only_the_first_use, layers("tied")),
    Fault("curvature: patches in another order", kernel_flipped, layers("conv2d")),
    Fault("curvature: softmax without its root", softmax_without_root, lambda: curved.check_likelihood("Categorical")),
    Fault("curvature: the last class left out", last_class_left_out, lambda: curved.check_likelihood("Categorical")),
    Fault(
        "curvature: predicted scales without information",
        scale_without_information,
        lambda: curved.check_likelihood("Heteroscedastic"),
    ),
    Fault("curvature: LSTM gates in another order", gate_order, layers("lstm")),
    Fault("curvature: products in single precision", products_in_single, curved.check_single_precision_is_positive),
    Fault("curvature: a word met twice", words_met_twice, layers("embedding")),
    Fault("curvature: words not counted", words_not_counted, curved.check_table),
    Fault("curvature: Hessian for Gauss-Newton", hessian_for_gauss_newton, curved.check_hessian),
    Fault("Laplace: prior counted twice", prior_times(2.0), proof.check_prior_counted_once),
    Fault("Laplace: prior dropped", prior_times(1e-12), proof.check_linear),
    Fault("Laplace: prior's precision as 1 / scale", prior_scale_for_variance, proof.check_linear),
    Fault("Laplace: precision for covariance", covariance_not_inverted, proof.check_linear),
    Fault("Laplace: the whole log determinant", whole_log_determinant, lambda: proof.check_linear((full,))),
    Fault("Laplace: evidence without (2π)^d/2", evidence_without_dimensions, proof.check_linear),
    Fault("Laplace: fixed weights in the evidence", fixed_weights_in_the_evidence, proof.check_on),
    Fault(
        "Laplace: sd for the variance of functions", sd_for_variance_of_functions, lambda: proof.check_functions(kfac)
    ),
    Fault("Laplace: basis transposed in functions", inverse_not_transposed, lambda: proof.check_functions(kfac)),
    Fault("Laplace: bridge with standard deviations", bridge_with_the_root, proof.check_bridge),
]
