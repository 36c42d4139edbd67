r"""Isokinetic dynamics on the unit sphere of directions (Robnik et al., 2023), and how long to keep a direction.

    dx = v dt,     dv = (I - v vᵀ) ∇log p(x) dt / (d - 1),     |v| = 1

keeps p(x) times the uniform law of v. Each part is solved exactly; a step is kick b, drift ½, kick 1 - 2b, drift ½, kick b with
McLachlan's b: second order, two gradients. A kick by δ = ε|∇log p| / (d - 1), with a = v·∇log p / |∇log p|, shrinks volume on the
sphere by (cosh δ + a sinh δ)^(d-1), so the energy error of a path is
    ΔE = Σ (d - 1) log(cosh δ + a sinh δ) - (log p(x') - log p(x)).
All of it lives in the coordinates y of x = R y, where the preconditioner R makes the target round.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nescio.batch import Batch, Gradient
from nescio.infer.adapt import shrunk
from nescio.noise import Noise
from nescio.target import Target

B = 0.1931833275037836  # McLachlan (1995): the smallest error among five-stage steps of second order
COLUMNS, ROWS = 256, 64  # of a trace: as many coordinates and chains tell how fast a chain forgets
# steps of one size in the warm-up, few of those averaged over; steps until a size is about right
STRETCH, FINDING = 8, 104
TRACE = 2000  # steps of the warm-up, at most, that are looked at together: however long it is, no more memory


class Point(NamedTuple):
    """Position and direction, with what the next step needs of the density."""

    x: Tensor  # (chains, dim)
    v: Tensor  # (chains, dim), unit vectors
    log_density: Tensor  # (chains,)
    gradient: Tensor  # (chains, dim), with respect to x


def path(target: Target, batch: Batch, root: Tensor, start: Point, size: float, count: int) -> tuple[Point, Tensor]:
    """`count` steps and their energy error."""
    kinetic = torch.zeros_like(start.log_density, dtype=torch.float64)
    shared = [root, torch.tensor(size, dtype=torch.float64, device=root.device)]
    *moved, kinetic = target.advance(step, batch, [*start, kinetic], shared, times=count)
    end = Point(*moved)
    return end, kinetic - (end.log_density.double() - start.log_density.double())


def step(
    gradient: Gradient,
    x: Tensor,
    v: Tensor,
    log_density: Tensor,
    slope: Tensor,
    kinetic: Tensor,
    root: Tensor,
    size: Tensor,
) -> tuple[Tensor, ...]:
    """The next Point, and the kinetic change up to it."""
    v, change = kick(v, pull(root, slope), B * size)
    kinetic = kinetic + change
    for coefficient in (1 - 2 * B, B):
        x = x + push(root, 0.5 * size * v)
        log_density, slope = gradient(x)
        v, change = kick(v, pull(root, slope), coefficient * size)
        kinetic = kinetic + change
    return x, v, log_density, slope, kinetic


def kick(v: Tensor, gradient: Tensor, size: Tensor | float) -> tuple[Tensor, Tensor]:
    """The directions after a time `size` in a constant gradient, and the kinetic change, in double precision."""
    most = v.shape[1] - 1
    norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True, dtype=torch.float64)
    some = norm.clamp(min=1e-300)
    a = ((v * gradient).sum(1, keepdim=True, dtype=torch.float64) / some).clamp(-1.0, 1.0)
    delta = size * norm / most
    zeta = (-delta).exp()
    along = (1 - zeta) * (1 + zeta + a * (1 - zeta))
    length = 1 + a + (1 - a) * zeta.square()  # of along e + 2ζ v, for unit vectors: 2ζ (cosh δ + a sinh δ)
    turned = (along / (length * some)).to(v) * gradient + (2 * zeta / length).to(v) * v
    return turned, most * (delta + (length / 2).log())[:, 0]  # log(cosh δ + a sinh δ)


def refresh(v: Tensor, z: Tensor, size: Tensor, length: Tensor) -> Tensor:
    """Directions that forget themselves over the distance `length`; after a time `size` of it."""
    return normalise(disturbed(v, z, size, length))


def disturbed(v: Tensor, z: Tensor, size: Tensor, length: Tensor) -> Tensor:
    """The same, not yet of unit length."""
    return v + ((2 * size / length).clamp(max=700.0).expm1() / v.shape[1]).sqrt() * z


def directions(noise: Noise, like: Tensor) -> Tensor:
    """Uniform on the sphere."""
    return normalise(noise.normal(*like.shape))


def normalise(v: Tensor) -> Tensor:
    return v / torch.linalg.vector_norm(v, dim=1, keepdim=True, dtype=torch.float64).to(v)


def push(root: Tensor, y: Tensor) -> Tensor:
    """R y, of each row."""
    return y * root if root.dim() == 1 else y @ root.mT


def pull(root: Tensor, gradient: Tensor) -> Tensor:
    """Rᵀ g: the gradient with respect to y."""
    return gradient * root if root.dim() == 1 else gradient @ root


# ---- what the warm-up learns ------------------------------------------------------------------------------------------


class Tuning(NamedTuple):
    """Preconditioner and length, and what they are learnt from. Spreads are within chains: modes may lie far apart."""

    length: float  # in the units of y
    root: Tensor  # R: (dim,) or (dim, dim)
    count: int
    mean: Tensor  # (chains, dim), of a window
    scatter: Tensor  # (dim,) or (dim, dim), summed over the chains
    trace: Tensor  # (rows, steps, columns) of y, for the correlation time

    @staticmethod
    def start(u: Tensor, length: float | None, dense: bool, warmup: int) -> Tuning:
        chains, dim = u.shape
        scatter = u.new_zeros((dim, dim) if dense else (dim,), dtype=torch.float64)
        first, last = Plan.of(warmup).trace
        trace = u.new_zeros(min(chains, ROWS), last - first if length is None else 0, min(dim, COLUMNS))
        return Tuning(length or math.sqrt(dim), torch.ones_like(u[0]), 0, torch.zeros_like(u).double(), scatter, trace)

    def add(self, us: Tensor) -> Tuning:
        """States after some steps, (chains, steps, dim): Welford's rule, each chain about its own mean."""
        x, steps = us.double(), us.shape[1]
        middle, count = x.mean(1), self.count + steps
        away, gap = x - middle[:, None], middle - self.mean
        dense, weight = self.scatter.dim() == 2, self.count * steps / count
        own = torch.einsum("csi,csj->ij", away, away) if dense else away.square().sum((0, 1))
        between = gap.mT @ gap if dense else gap.square().sum(0)
        mean = self.mean + gap * (steps / count)
        return self._replace(count=count, mean=mean, scatter=self.scatter + own + weight * between)

    def close(self, factor: float, precondition: bool, fixed: bool) -> Tuning:
        """The end of a window: R and L from the variances, shrunk as a metric is (adapt.py). Too short a window teaches nothing."""
        empty = self._replace(count=0, mean=torch.zeros_like(self.mean), scatter=torch.zeros_like(self.scatter))
        n = len(self.mean) * (self.count - 1)
        if self.count < 10:
            return empty
        spread, own = shrunk(self.scatter / n, n)
        root, dim = self.root, self.mean.shape[1]
        total = float(own.sum())
        if precondition:
            total = float(dim)
            root = (torch.linalg.cholesky(spread) if spread.dim() == 2 else spread.sqrt()).to(root)
        length = self.length if fixed or not total > 0 else factor * math.sqrt(total)
        return empty._replace(root=root, length=length)

    def units(self, before: Tuning) -> float:
        """How long one unit of y is, in those of before."""
        ours, theirs = (t.root.double().square() for t in (self, before))
        if ours.dim() == 2:  # of each latent by itself
            ours, theirs = ours.sum(1), theirs.sum(1) if theirs.dim() == 2 else theirs
        return float((ours / theirs).mean().sqrt())

    def write(self, us: Tensor, at: int) -> None:
        """Some more steps of the trace, (chains, steps, dim), into the place that was made for them."""
        rows, _, columns = self.trace.shape
        if self.trace.numel():
            some = us[:rows, :, torch.arange(columns, device=us.device) * us.shape[2] // columns]
            self.trace[:, at : at + us.shape[1]] = some


class Plan(NamedTuple):
    """Of the warm-up: the way in; two windows for R and L; step sizes; a trace at a fixed step size, for L; step sizes again."""

    first: int
    ends: tuple[int, int]
    trace: tuple[int, int]

    @staticmethod
    def of(warmup: int) -> Plan:
        at = [round(part * warmup) for part in (0.3, 0.45, 0.7, 0.8, 0.9)]
        return Plan(at[0], (at[1], at[2]), (max(at[3], at[4] - TRACE), at[4]))

    def renews(self, step: int) -> bool:
        """Whether another step size may be taken after so many steps: at once where one has to be found, later now and then."""
        found = step - max(mark for mark in (0, *self.ends) if mark < step)
        return step in (self.first, *self.ends, *self.trace) or found <= FINDING or found % STRETCH == 0

    def stretch(self, step: int) -> int:
        """How many steps, after so many, are of one size."""
        return next(count for count in range(1, STRETCH + 1) if self.renews(step + count))


def correlation_time(trace: Tensor) -> float:
    """Steps per effective draw, 1 + 2 Σ ρ, averaged over coordinates; Geyer's initial positive pairs, chains pooled."""
    x = (trace - trace.mean(1, keepdim=True)).double()  # (chains, steps, dim)
    n = x.shape[1]
    power = torch.fft.rfft(x, 2 * n, dim=1).abs().square().mean(0)
    covariance = torch.fft.irfft(power, 2 * n, dim=0)[:n] / n
    moving = covariance[0] > 0
    rho = covariance[:, moving] / covariance[0, moving]
    pairs = rho[: n // 2 * 2].reshape(n // 2, 2, -1).sum(1)
    positive = (pairs > 0).cumprod(0)
    times = 2 * (pairs * positive).sum(0) - 1
    return float(times.mean().clamp(min=1.0)) if times.numel() else 1.0
