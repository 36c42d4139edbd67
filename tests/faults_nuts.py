"""Faults in NUTS, each with the check that sees it.

`check_reference` plays single chains again by a plain recursive tree with the same random numbers, so it is exact; it cannot know whether
the algorithm itself leaves the posterior alone. `check_gaussian` and `check_skewed` do: chains start at exact draws, and after two
transitions come mean and variance of normal scores, and DKW.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import numpy as np
import pytest
import torch
from chance import assert_gaussian_variance, assert_law, assert_mean
from fault import Fault
from scipy import stats
from targets import DOUBLE, Known, conjugate, correlated_gaussian, plain, skewed
from torch import Tensor

from nescio.batch import Gradient
from nescio.data.source import source
from nescio.infer import leaf
from nescio.infer.adapt import Dense, Diagonal, Metric, remade
from nescio.infer.hmc import State
from nescio.infer.nuts import NUTS, Info
from nescio.infer.tree import LEAVES, Stretch
from nescio.laws import Normal
from nescio.noise import Noise
from nescio.posterior.posterior import Ends
from nescio.target import Target

NOISE = Noise(5, (), dtype=DOUBLE)


def run(
    target: Target, theta: Tensor, method: NUTS, metric: Metric | None = None, times: int = 2, noise: Noise = NOISE
) -> tuple[State, list[Info]]:
    """A few transitions from values theta (chains, dim), nothing adapted."""
    state, infos = method.init(target, Ends(theta, {}), noise), []
    state = state if metric is None else state._replace(metric=metric)
    for i in range(times):
        state, info = method.step(target, state, target.batch(None), noise.at("step", i))
        infos.append(info)
    return state, infos


# ---- a chain by recursion ------------------------------------------------------------------------------------------------


@final
class Alone:
    """One transition of chain `i` of `chains`, as the papers have it: recursive, in numpy, whole lists of momenta."""

    def __init__(self, target: Target, u: Tensor, sigma: np.ndarray, size: float, noise: Noise, i: int) -> None:
        self.target = target if target.rest is None else target.chains(slice(i, i + 1))
        self.sigma, self.size, self.noise, self.i, self.chains = sigma, size, noise, i, len(u)
        z = noise.at("momentum").normal(*u.shape)[i].numpy()
        root = np.linalg.cholesky(sigma)
        p0 = np.linalg.solve(root.T, z)
        log_density, gradient = self.density(u[i].numpy())
        start = (u[i].numpy(), p0, gradient)
        self.energy0 = 0.5 * p0 @ sigma @ p0 - log_density
        self.draw, self.divergent, self.accepts, self.depth = u[i].numpy(), False, [], 0
        self.ends, self.momenta, self.weight = [start, start], [p0], 1.0

    def density(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.target.value_and_grad(torch.as_tensor(u)[None], self.target.batch(None))
        return value.item(), gradient[0].numpy()

    def straight(self, a: list[np.ndarray], b: list[np.ndarray]) -> bool:
        def ahead(momenta: list[np.ndarray]) -> bool:
            total = self.sigma @ np.sum(momenta, axis=0)
            return bool(total @ momenta[0] > 0 and total @ momenta[-1] > 0)

        return ahead(a + b) and ahead([*a, b[0]]) and ahead([a[-1], *b])

    def build(self, depth: int, side: int) -> list[np.ndarray] | None:
        """The momenta of a subtree of depth `depth`, or None where it is not whole."""
        if depth == 0:
            return self.leaf(side)
        first = self.build(depth - 1, side)
        second = None if first is None else self.build(depth - 1, side)
        return first + second if first is not None and second is not None and self.straight(first, second) else None

    def leaf(self, side: int) -> list[np.ndarray] | None:
        (u, p, gradient), size = self.end, self.size * (1 if side else -1)
        p = p + size / 2 * gradient
        u = u + size * self.sigma @ p
        log_density, gradient = self.density(u)
        p = p + size / 2 * gradient
        self.end = (u, p, gradient)
        error = 0.5 * p @ self.sigma @ p - log_density - self.energy0
        error = error if math.isfinite(error) else math.inf
        self.accepts.append(min(1.0, math.exp(-error)))
        self.divergent = error > 1000
        self.within.append((u, math.exp(-error)))
        total = sum(w for _, w in self.within)
        part, place = divmod(len(self.accepts) - 1, LEAVES)
        coin = self.noise.at("leaf", part).uniform(self.chains, LEAVES)[self.i, place].item()
        if coin * total < math.exp(-error):
            self.candidate = u
        return None if self.divergent else [p]

    def go(self, max_depth: int) -> Alone:
        sides = self.noise.at("direction").integers(0, 2, self.chains, max_depth)[self.i]
        coins = self.noise.at("half").uniform(self.chains, max_depth)[self.i]
        for level in range(max_depth):
            side = int(sides[level])
            self.end, self.within, self.candidate = self.ends[side], [], self.draw
            new = self.build(level, side)
            if new is None:
                break
            weight = sum(w for _, w in self.within)
            if coins[level].item() * self.weight < weight:
                self.draw = self.candidate
            self.ends[side] = self.end
            old = self.momenta if side else self.momenta[::-1]  # towards the new half
            self.weight, self.depth = self.weight + weight, self.depth + 1
            self.momenta = old + new if side else (old + new)[::-1]
            if not self.straight(old, new):
                break
        return self


def compare(target: Target, theta: Tensor, size: float, metric: Metric, sigma: np.ndarray, max_depth: int = 5) -> None:
    """One transition of all chains at once against each of them alone."""
    state, (info,) = run(target, theta, NUTS(step_size=size, max_depth=max_depth, warmup=0), metric, times=1)
    u = target.u(theta)
    alone = [Alone(target, u, sigma, size, NOISE.at("step", 0), i).go(max_depth) for i in range(len(u))]
    np.testing.assert_allclose(state.u, [a.draw for a in alone], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(info.acceptance, [np.mean(a.accepts) for a in alone], rtol=1e-8, atol=1e-12)
    assert info.depth.tolist() == [a.depth for a in alone]
    assert info.leapfrogs.tolist() == [len(a.accepts) for a in alone]
    assert info.divergent.tolist() == [a.divergent for a in alone]
    log_density, gradient = target.value_and_grad(state.u, target.batch(None))
    torch.testing.assert_close(state.log_density, log_density)
    torch.testing.assert_close(state.gradient, gradient)


def check_reference() -> None:
    """Fine and coarse steps, diagonal and dense metrics, some of them far from the target's."""
    known = correlated_gaussian(3)
    theta = known.exact_draws(20, np.random.default_rng(0))
    variance = np.array([0.5, 3.0, 10.0])
    compare(known.target(), theta, 0.4, Diagonal(torch.as_tensor(variance)), np.diag(variance))
    compare(known.target(), theta, 0.7, Dense(torch.as_tensor(known.covariance)), known.covariance)
    compare(
        known.target(), theta[:6], 0.02, Diagonal(torch.as_tensor(variance)), np.diag(variance), 8
    )  # two sets of coins
    known = skewed(2)
    theta = known.exact_draws(20, np.random.default_rng(1))
    for size in (0.1, 1.2, 6.0):  # at the last most diverge
        compare(known.target(), theta, size, Diagonal(torch.ones(2, dtype=DOUBLE)), np.eye(2), max_depth=4)


def check_fixed_rest() -> None:
    """Weights that are held fixed, at different values in each chain, stay with their chain as others end."""
    known = conjugate()
    theta = known.exact_draws(12, np.random.default_rng(2)) * torch.linspace(0.2, 2, 12, dtype=DOUBLE)[:, None]
    target = known.target().free(torch.tensor([True, False, True]), theta)
    compare(target, theta, 0.03, Diagonal(torch.ones(2, dtype=DOUBLE)), np.eye(2))


# ---- invariance ----------------------------------------------------------------------------------------------------------


def invariant(
    known: Known, score: Callable[[np.ndarray], np.ndarray], size: float, n: int, metric: Metric | None = None
) -> None:
    """`score` makes exact draws standard normal, coordinate by coordinate."""
    theta = known.exact_draws(n, np.random.default_rng(3))
    target = known.target()
    state, _ = run(target, theta, NUTS(step_size=size, warmup=0), metric)
    after = target.theta(state.u)
    scores = score(after.numpy())
    assert float((after - theta).abs().mean()) > 0.1 * math.sqrt(np.diag(known.covariance).min()), "chains stand still"
    assert_mean(scores, 0.0, 1.0)
    assert_gaussian_variance(scores, 0.0, 1.0)
    for column in scores.T:
        assert_law(column, stats.norm.cdf)
    if scores.shape[1] > 1:
        pairs = scores[:, :-1] + scores[:, 1:]  # correlations: their sum has variance 2
        assert_gaussian_variance(pairs, 0.0, 2.0)


def whiten(known: Known) -> Callable[[np.ndarray], np.ndarray]:
    root = np.linalg.cholesky(known.covariance)
    return lambda x: np.linalg.solve(root, (x - known.mean).T).T


def gumbel(x: np.ndarray) -> np.ndarray:
    """P(log X > x) = exp(-e^x)."""
    return stats.norm.isf(np.exp(-np.exp(x)))


def check_gaussian(size: float = 0.9, n: int = 40_000) -> None:
    known = correlated_gaussian(2)
    invariant(known, whiten(known), size, n)


def check_fine() -> None:
    """Longer trees, where each doubling back in time counts."""
    check_gaussian(0.3)


def check_skewed(size: float = 0.8, n: int = 40_000) -> None:
    invariant(skewed(2), gumbel, size, n)


# ---- single claims -------------------------------------------------------------------------------------------------------


@final
class Given(Metric):
    """The identity, and momenta that are not random."""

    def __init__(self, p: Tensor) -> None:
        self.p = p

    def momentum(self, z: Tensor) -> Tensor:
        return self.p

    def whiten(self, p: Tensor) -> Tensor:
        return p

    def velocity(self, p: Tensor) -> Tensor:
        return p

    def spread(self, z: Tensor) -> Tensor:
        return z

    def gather(self, x: Tensor) -> Tensor:
        return x

    def tensors(self) -> tuple[Tensor, Tensor]:
        """What a diagonal metric of ones would hold."""
        return torch.ones_like(self.p[0]), torch.ones_like(self.p[0])


def circle(size: float, max_depth: int = 10, chains: int = 6) -> Info:
    """A standard Gaussian in two dimensions on its circular orbit, u ⟂ p and as long: the period is 2π at every phase."""
    model, data = plain(2, Normal(0, 1))
    angle = torch.arange(chains, dtype=DOUBLE)
    u, p = torch.stack([angle.cos(), angle.sin()], 1), torch.stack([-angle.sin(), angle.cos()], 1)
    method = NUTS(step_size=size, max_depth=max_depth, warmup=0)
    return run(Target(model, source(data)), u, method, Given(p), times=1)[1][0]


def check_depth() -> None:
    """Leapfrog turns by arccos(1 - ε²/2) a step; 2^d points turn back once they span half a period."""
    for size in (0.03, 0.07, 0.2, 0.6, 0.9):
        angle = math.acos(1 - size**2 / 2)
        depth = next(d for d in range(20) if (2**d - 1) * angle > math.pi)
        info = circle(size)
        assert info.depth.tolist() == [depth] * 6, f"depth {info.depth.tolist()}, not {depth} at {size}"
        assert info.leapfrogs.tolist() == [2**depth - 1] * 6
        assert not bool(info.divergent.any()) and float(info.acceptance.min()) > 1 - size**2


def check_max_depth() -> None:
    info = circle(1e-3, max_depth=4)
    assert info.depth.tolist() == [4] * 6 and info.leapfrogs.tolist() == [15] * 6


def check_turned() -> None:
    """Momenta by hand: straight on; the whole turns at one end or the other; a with the first of b does; the last of a with b."""

    def bends(*momenta: tuple[float, float]) -> bool:
        p = torch.tensor(momenta, dtype=DOUBLE)[:, None]
        a, b = p[: len(p) // 2], p[len(p) // 2 :]
        both = [Stretch(x.sum(0), x[0], x[-1]) for x in (a, b)]
        return bool(leaf.turned(both[0], both[1]))

    assert not bends((1, 0), (1, 0), (1, 0.5), (1, 0.5))
    assert bends((1, 0), (-1, 3), (-1, 3), (0, 1)), "the whole turns at its first end"
    assert bends((0, 1), (-1, 3), (-1, 3), (1, 0)), "the whole turns at its last end"
    assert bends((1, 0), (1, 0), (-3, 1), (9, 0)), "a with the first of b"
    assert bends((9, 0), (-3, 1), (1, 0), (1, 0)), "the last of a with b"


def check_divergence() -> None:
    """A step of 60 standard deviations: one leapfrog, marked, and the chain stays; nobody else is touched."""
    known = skewed(1)
    theta = torch.tensor([[-1.0], [0.0], [-60.0]], dtype=DOUBLE)  # the last one is on the flat side, and goes far
    state, (info,) = run(known.target(), theta, NUTS(step_size=60.0, warmup=0, max_depth=1), times=1)
    blown = info.divergent
    assert bool(blown.any()), "no divergence"
    torch.testing.assert_close(state.u[blown], theta[blown], rtol=0, atol=0)
    assert info.depth[blown].eq(0).all() and info.leapfrogs[blown].eq(1).all() and info.acceptance[blown].eq(0).all()


# ---- faults --------------------------------------------------------------------------------------------------------------


def replaced(name: str, new: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(leaf, name, new)


def always(new: Tensor, old: Tensor) -> Tensor:
    return torch.ones_like(old)


def evenly(_: Tensor, half: Tensor) -> Tensor:
    return torch.full_like(half, 0.5)


def unbiased(new: Tensor, old: Tensor) -> Tensor:
    """Leaves the posterior alone, but walks less far: only the reference can tell."""
    return torch.sigmoid(new - old)


def inverted(new: Tensor, old: Tensor) -> Tensor:
    return (old - new).exp()


def unchecked(patch: pytest.MonkeyPatch) -> None:
    """Subtrees that turn back are kept."""
    join = leaf.join
    patch.setattr(leaf, "join", lambda *given: (*join(*given)[:2], given[2] < 0, join(*given)[3]))


def last_end(a: Stretch, b: Stretch) -> Tensor:
    """Only the end that was made last is looked at."""
    return ((a.total + b.total) * b.last).sum(-1) <= 0


def uncrossed(a: Stretch, b: Stretch) -> Tensor:
    """The whole only, none of the checks across the two parts."""
    total = a.total + b.total
    return ((total * a.first).sum(-1) <= 0) | ((total * b.last).sum(-1) <= 0)


def unweighted(patch: pytest.MonkeyPatch) -> None:
    """Momenta for velocities."""
    for kind in (Diagonal, Dense):
        patch.setattr(kind, "whiten", lambda self, p: p)


def never(a: Stretch, b: Stretch) -> Tensor:
    return torch.zeros_like(a.total[..., 0], dtype=torch.bool)


def forwards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Noise, "integers", lambda self, low, high, *shape: torch.ones(shape, dtype=torch.long))


def full_kick(
    gradient: Gradient, u: Tensor, p: Tensor, _: Tensor, slope: Tensor, size: Tensor, *metric: Tensor
) -> tuple[Tensor, ...]:
    """Kick, drift, and no second kick: neither reversible nor right."""
    p = p + size * slope
    u = u + size * remade(metric).velocity(p)
    log_density, slope = gradient(u)
    return u, p, log_density, slope


def potential(start: State, p0: Tensor, log_density: Tensor, p: Tensor) -> Tensor:
    """The kinetic energy is left out."""
    return start.log_density - log_density


def shared_noise(patch: pytest.MonkeyPatch) -> None:
    """All leaves of all levels by the same uniforms."""
    patch.setattr(Noise, "uniform", lambda self, *shape: Noise(0, (), dtype=DOUBLE).normal(*shape).sigmoid())


FAULTS = [
    Fault("NUTS: the new half is always taken", replaced("half_chance", always), check_gaussian),
    Fault("NUTS: the ratio of the halves upside down", replaced("half_chance", inverted), check_gaussian),
    Fault("NUTS: no bias towards the new half", replaced("half_chance", unbiased), check_reference),
    Fault("NUTS: the last leaf is always taken", replaced("leaf_chance", always), check_gaussian),
    Fault("NUTS: leaves by a fair coin, not by weight", replaced("leaf_chance", evenly), check_gaussian),
    Fault("NUTS: a half that turns back inside is kept", unchecked, check_gaussian),
    Fault("NUTS: turns are looked for at the last end only", replaced("turned", last_end), check_gaussian),
    Fault("NUTS: turns are not looked for", replaced("turned", never), check_depth),
    Fault("NUTS: no checks across two halves", replaced("turned", uncrossed), check_turned),
    Fault("NUTS: turns by momenta, not velocities", unweighted, check_reference),
    Fault("NUTS: always forwards", forwards, check_fine),
    Fault("NUTS: one full kick", replaced("leap", full_kick), check_skewed),
    Fault("NUTS: weights without kinetic energy", replaced("energy_error", potential), check_gaussian),
    Fault("NUTS: one uniform for all leaves", shared_noise, check_gaussian),
    Fault("NUTS: divergent halves are kept", replaced("DIVERGENT", math.inf), check_divergence),
]
