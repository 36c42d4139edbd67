"""Chains that have not mixed are told from chains that have only swapped their units."""

from __future__ import annotations

from pathlib import Path

import torch

from nescio import Model, fit, load
from nescio.infer import HMC, MAP
from nescio.laws import Normal
from nescio.likelihoods import Categorical, Gaussian, MultiTask
from nescio.nets import mlp
from nescio.posterior.draws import Draws
from nescio.posterior.mixing import functions, in_functions, in_weights


def posterior() -> tuple[Draws, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(25, 1, generator=generator)
    model = Model(mlp(1, 2, 1, activation=torch.nn.Tanh), Normal(0.0, 1.0), Gaussian(0.3))
    drawn = fit(model, (x, torch.sin(x)), 4 * HMC(draws=300, warmup=300, leapfrog=10), seed=1)
    assert isinstance(drawn, Draws)
    return drawn, x


def swapped(drawn: Draws) -> Draws:
    """The same functions with the two hidden units exchanged in half of the chains."""
    site = {s.name: s for group in drawn.model.prior.groups for s in group.sites}
    theta, start = drawn.theta.clone(), 0
    for name, s in site.items():
        if name.startswith("likelihood."):
            continue
        block = theta[:2, :, start : start + s.size].reshape(2, -1, *s.shape)
        axis = {"0.weight": 2, "0.bias": 2, "2.weight": 3}.get(name)
        if axis is not None:
            theta[:2, :, start : start + s.size] = block.flip(axis).flatten(2)
        start += s.size
    return Draws(drawn.model, theta, drawn.log_joint, drawn.statistics, drawn.info)


def test_functions_are_the_means_of_each_draw() -> None:
    drawn, x = posterior()
    assert functions(drawn, x).shape == (4, 300, 25)
    torch.testing.assert_close(
        functions(drawn, x).mean((0, 1)), drawn.predict(x, draws=None).mean[:, 0], rtol=1e-4, atol=1e-5
    )


def test_exchanged_units_are_the_same_functions_and_other_weights() -> None:
    drawn, x = posterior()
    other = swapped(drawn)
    torch.testing.assert_close(functions(other, x), functions(drawn, x), rtol=1e-4, atol=1e-5)
    assert abs(float(in_functions(other, x).rhat.max()) - float(in_functions(drawn, x).rhat.max())) < 1e-3
    shifted = other.theta.clone()
    shifted[0, :, 0] += 5.0  # a chain that sits elsewhere is seen in the weights
    assert in_weights(Draws(drawn.model, shifted, drawn.log_joint, drawn.statistics, {})).rhat.max() > 1.2


def test_a_chain_that_predicts_something_else_is_flagged() -> None:
    drawn, x = posterior()
    theta = drawn.theta.clone()
    theta[0] = theta[0, :1]  # stuck
    stuck = in_functions(Draws(drawn.model, theta, drawn.log_joint, drawn.statistics, {}), x)
    assert not stuck.converged and stuck.problems


def test_classes_and_tasks_have_functions_too() -> None:
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    model = Model(mlp(2, 3, 3), Normal(), Categorical())
    drawn = fit(model, (x, torch.arange(10) % 3), 2 * HMC(draws=5, warmup=5, leapfrog=2))
    assert functions(drawn, x).shape == (2, 5, 30)  # type: ignore[arg-type]

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(2, 1), torch.nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"a": self.a(x), "b": self.b(x)}

    both = Model(Two(), Normal(), MultiTask(a=Gaussian(), b=Categorical()))
    drawn = fit(both, (x, {"a": x[:, :1], "b": torch.arange(10) % 3}), 2 * HMC(draws=4, warmup=2, leapfrog=2))
    assert functions(drawn, x).shape == (2, 4, 40)  # type: ignore[arg-type]


def test_the_verdict_travels_with_the_posterior(tmp_path: Path) -> None:
    """Four short chains have not mixed, and the file says so, with what to do."""
    x = torch.randn(10, 1, generator=torch.Generator().manual_seed(0))
    model = Model(mlp(1, 3, 1), Normal(), Gaussian(0.1))
    drawn = fit(model, (x, torch.sin(x)), 4 * HMC(draws=8, warmup=0, leapfrog=1, step_size=1e-3))
    assert drawn.info["mixing"]["rhat"] > 1.01
    assert any("R-hat" in problem and "longer" in problem for problem in drawn.info["mixing"]["problems"])
    drawn.save(tmp_path / "short")
    assert load(tmp_path / "short", model).info["mixing"] == drawn.info["mixing"]
    assert "mixing" not in fit(model, (x, torch.sin(x)), 4 * MAP(epochs=1)).info
