"""Planted faults of the samplers: kernels that look right and are not. Each is caught by a check of tests/test_samplers.py."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import test_samplers as proof
import torch
from fault import Fault
from targets import correlated_gaussian, skewed
from torch import Tensor

from nescio.infer import MALA, adapt, hmc, langevin, metropolis, sghmc, sgld
from nescio.infer.sampler import Sampler
from nescio.infer.stochastic import StochasticGradient
from nescio.noise import Noise


def invariant(name: str, setting: str, on_skewed: bool = False) -> Callable[[], None]:
    def check() -> None:
        if on_skewed:
            proof.check_invariant(name, setting, skewed(), proof.log_exponential)
        else:
            proof.check_invariant(name, setting, correlated_gaussian())

    return check


def no_accept_step(m: pytest.MonkeyPatch) -> None:
    m.setattr(hmc, "energy_error", lambda start, p0, value, p: torch.zeros_like(value))


def accept_on_potential_only(m: pytest.MonkeyPatch) -> None:
    m.setattr(hmc, "energy_error", lambda start, p0, value, p: start.log_density - value)


def rejected_states_dropped(m: pytest.MonkeyPatch) -> None:
    """A rejected chain takes the state of one that was accepted: the draws are those of accepted moves only."""
    true = hmc.HMC.step

    def step(self, target, state, batch, noise):
        new, info = true(self, target, state, batch, noise)
        moved = (new.u != state.u).any(1)
        pool = moved.nonzero()[:, 0]
        index = torch.where(moved, torch.arange(len(moved)), pool[torch.arange(len(moved)) % len(pool)])
        return new._replace(u=new.u[index], log_density=new.log_density[index], gradient=new.gradient[index]), info

    m.setattr(hmc.HMC, "step", step)


def momentum_too_large(m: pytest.MonkeyPatch) -> None:
    m.setattr(adapt.Diagonal, "momentum", lambda self, z: 1.01 * z / self.root)


def full_kick(m: pytest.MonkeyPatch) -> None:
    def wrong(target, batch, start, p, size, count):
        u, gradient, value = start.u, start.gradient, start.log_density
        p = p + size * gradient
        for _ in range(count):
            u = u + size * start.metric.velocity(p)
            value, gradient = target.value_and_grad(u, batch)
            p = p + size * gradient
        return u, p, value, gradient

    m.setattr(proof, "leapfrog", wrong)


def forward_euler(m: pytest.MonkeyPatch) -> None:
    def wrong(target, batch, start, p, size, count):
        u, gradient, value = start.u, start.gradient, start.log_density
        for _ in range(count):
            u, p = u + size * start.metric.velocity(p), p + size * gradient
            value, gradient = target.value_and_grad(u, batch)
        return u, p, value, gradient

    m.setattr(proof, "leapfrog", wrong)


def kick_of_052(m: pytest.MonkeyPatch) -> None:
    true = hmc.leapfrog

    def wrong(target, batch, start, p, size, count):
        return true(target, batch, start, p + 0.02 * size * start.gradient, size, count)

    m.setattr(proof, "leapfrog", wrong)


def kinetic_energy_halved(m: pytest.MonkeyPatch) -> None:
    def wrong(start, p0, value, p):
        return 0.25 * ((p - p0) * (p + p0)).sum(1) - (value - start.log_density)

    m.setattr(proof, "energy_error", wrong)


def proposal_asymmetry_ignored(m: pytest.MonkeyPatch) -> None:
    """MALA as if its proposal were symmetric."""
    m.setattr(langevin, "torch", _Blind())


class _Blind:
    """torch, but sums of proposal terms vanish: where() hands on the difference of the log densities only."""

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)

    def where(self, condition: Tensor, a: Tensor, b: object) -> Tensor:
        if isinstance(b, float) and math.isinf(b):
            return torch.zeros_like(a)
        return torch.where(condition, a, b)  # type: ignore[call-overload]


def walk_always_accepts(m: pytest.MonkeyPatch) -> None:
    true = metropolis.choose

    def wrong(target, state, proposal, batch, noise):
        new, accept = true(target, state, proposal, batch, noise)
        return new._replace(u=proposal), accept

    m.setattr(metropolis, "choose", wrong)


def one_noise_for_momentum_and_acceptance(m: pytest.MonkeyPatch) -> None:
    """The uniform of the accept step is a function of the momentum."""
    true = Noise.uniform

    def wrong(self: Noise, *shape: int) -> Tensor:
        if self.key[-1:] != ("accept",):
            return true(self, *shape)
        z = Noise(self.seed, (*self.key[:-1], "momentum"), self.device, self.dtype).normal(shape[0], 4)
        return torch.special.ndtr(z[:, 0])

    m.setattr(Noise, "uniform", wrong)


def langevin_noise_too_small(m: pytest.MonkeyPatch) -> None:
    """√h instead of √(2h)."""
    m.setattr(langevin, "math", _Half())


class _Half:
    @staticmethod
    def sqrt(x: float) -> float:
        return (x / 2) ** 0.5


def sgld_noise_too_small(m: pytest.MonkeyPatch) -> None:
    true = sgld.SGLD.step

    def step(self, target, state, batch, noise):
        new, info = true(self, target, state, batch, noise)
        h = self.step_size
        z = noise.normal(*state.u.shape)
        return new._replace(u=new.u - (math.sqrt(2 * h) - math.sqrt(h)) * z), info

    m.setattr(sgld.SGLD, "step", step)


def sghmc_friction_in_the_noise_forgotten(m: pytest.MonkeyPatch) -> None:
    true = sghmc.SGHMC.step

    def step(self, target, state, batch, noise):
        new, info = true(self, target, state, batch, noise)
        z = noise.normal(*state.u.shape)
        extra = (math.sqrt(2 * self.step_size) - math.sqrt(2 * self.friction * self.step_size)) * z
        return new._replace(u=new.u + extra, v=new.v + extra), info

    m.setattr(sghmc.SGHMC, "step", step)


def temperature_squared(m: pytest.MonkeyPatch) -> None:
    """The density of a target twice as warm."""
    from nescio.target import Bound

    true = Bound.__call__
    m.setattr(Bound, "__call__", lambda bound, u: tuple(0.9 * x for x in true(bound, u)))


def step_sizes_never_settle(m: pytest.MonkeyPatch) -> None:
    """Wide swings to the end: the mean of log ε is not where the mean acceptance is."""
    m.setattr(adapt.StepSize, "settle", lambda self: adapt.StepSize.start(self.best))


def every_state_of_a_cycle_is_kept(m: pytest.MonkeyPatch) -> None:
    m.setattr(StochasticGradient, "keeps", Sampler.keeps)


def cycles_of_the_whole_run(m: pytest.MonkeyPatch) -> None:
    """The warm-up takes the first of them."""
    m.setattr(StochasticGradient, "size", lambda self, part: self.step_size(part))


def moments_forget_the_spread_between_chains(m: pytest.MonkeyPatch) -> None:
    def wrong(self, u):
        x = u.double()
        mean = x.mean(0)
        centred = x - mean
        count = self.count + len(u)
        return adapt.Moments(
            count, self.mean + (mean - self.mean) * (len(u) / count), self.scatter + centred.mT @ centred
        )

    m.setattr(adapt.Moments, "update", wrong)


def dual_averaging_in_the_wrong_direction(m: pytest.MonkeyPatch) -> None:
    true = adapt.StepSize.update
    m.setattr(adapt.StepSize, "update", lambda self, acceptance, target: true(self, target, acceptance))


FAULTS: list[Fault] = [
    Fault("HMC: no accept step", no_accept_step, invariant("HMC", "coarse")),
    Fault("HMC: accept on the potential only", accept_on_potential_only, invariant("HMC", "quarter period")),
    Fault("HMC: rejected states dropped", rejected_states_dropped, invariant("HMC", "coarse", on_skewed=True)),
    Fault("HMC: momentum 1% too large", momentum_too_large, proof.check_momentum),
    Fault("HMC: full kicks", full_kick, proof.check_energy_order),
    Fault("HMC: forward Euler", forward_euler, proof.check_reversible),
    Fault("HMC: a first kick of 0.52", kick_of_052, proof.check_reversible),
    Fault("HMC: kinetic energy halved", kinetic_energy_halved, proof.check_energy_identity),
    Fault(
        "HMC: momentum and acceptance share their noise",
        one_noise_for_momentum_and_acceptance,
        invariant("HMC", "coarse"),
    ),
    Fault("MALA: no correction", proposal_asymmetry_ignored, invariant("MALA", "coarse")),
    Fault("Metropolis: accepts everything", walk_always_accepts, invariant("Metropolis", "quarter period")),
    Fault("ULA: noise √h", langevin_noise_too_small, proof.check_ula_law),
    Fault("SGLD: noise √h", sgld_noise_too_small, proof.check_ula_law),
    Fault("SGHMC: noise without friction", sghmc_friction_in_the_noise_forgotten, proof.check_sghmc_law),
    Fault(
        "adaptation: step sizes never settle",
        step_sizes_never_settle,
        lambda: proof.check_acceptance(MALA(draws=100, warmup=300)),
    ),
    Fault("Cycles: exploring states are draws", every_state_of_a_cycle_is_kept, proof.check_cycles),
    Fault("Cycles: the warm-up eats some", cycles_of_the_whole_run, proof.check_cycles),
    Fault("target: wrong temperature", temperature_squared, invariant("HMC", "quarter period")),
    Fault("adaptation: spread between steps forgotten", moments_forget_the_spread_between_chains, proof.check_moments),
    Fault("adaptation: dual averaging reversed", dual_averaging_in_the_wrong_direction, proof.check_dual_averaging),
]
