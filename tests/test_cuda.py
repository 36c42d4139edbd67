"""The same on a GPU, where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from check_method import check_save_and_load, regression
from torch import nn

from nescio import Model, fit, load
from nescio.compiled import Compiled
from nescio.infer import HMC, MALA, MAP, MCLMC, NUTS, SGHMC, SGLD, AdjustedMCLMC, Metropolis
from nescio.infer.sampler import Sampler
from nescio.laws import HalfCauchy, MatrixNormal, Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.nets import lenet5, mlp
from nescio.noise import Noise
from nescio.posterior import Draws

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def test_full_batch_training_agrees_with_the_cpu() -> None:
    model, (x, y), _ = regression()
    model, x, y, method = model.double(), x.double(), y.double(), MAP(epochs=50, batch_size=60)
    cpu, gpu = fit(model, (x, y), method), fit(model, (x, y), method, device="cuda")
    torch.testing.assert_close(gpu.predict(x.cuda()).mean.cpu(), cpu.predict(x).mean, rtol=1e-6, atol=1e-6)


def test_ensembles_of_convolutions_are_vectorised_and_reproducible() -> None:
    x = torch.randn(64, 1, 28, 28)
    y = torch.randint(10, (64,))
    model = Model(lenet5(), Normal(0.0, 1.0), Categorical())
    a, b = (fit(model, (x, y), 3 * MAP(epochs=2), seed=1, device="cuda") for _ in range(2))
    torch.testing.assert_close(a.predict(x.cuda()).mean, b.predict(x.cuda()).mean, rtol=1e-3, atol=1e-4)
    assert a.predict(x.cuda()).mean.shape == (64, 10)


@pytest.mark.parametrize(
    "method",
    [
        HMC(draws=3, warmup=3, leapfrog=5, step_size=1e-3),
        NUTS(draws=3, warmup=0, max_depth=3, step_size=1e-3),
        MCLMC(draws=5, warmup=0, step_size=1e-2),
        AdjustedMCLMC(draws=3, warmup=0, step_size=1e-2, length=0.05),
        MAP(epochs=3, batch_size=20),
    ],
    ids=lambda method: type(method).__name__,
)
def test_recorded_graphs_take_the_same_steps(method: Sampler | MAP) -> None:
    """In double precision rounding cannot grow to 1e-6 in a few steps."""
    model, (x, y), _ = regression()
    model, x, y = model.double(), x.double(), y.double()
    plain, quick = (fit(model, (x, y), 5 * method, device="cuda", compile=c) for c in (False, True))
    assert isinstance(plain, Draws) and isinstance(quick, Draws)
    assert quick.info["compiled"] is True
    torch.testing.assert_close(quick.theta, plain.theta, rtol=1e-6, atol=1e-6)


def test_hierarchical_and_structured_laws_move_with_the_model() -> None:
    prior = {
        "*.weight": MatrixNormal(scale=HalfCauchy(1.0).per("layer")),
        "*": Normal(0.0, HalfCauchy(1.0).per("unit")),
    }
    model = Model(mlp(2, 8, 1), prior, Gaussian(HalfCauchy(1.0))).cuda()
    assert model.prior_predictive(torch.randn(5, 2, device="cuda"), draws=7).mean.is_cuda


def test_a_posterior_crosses_devices(tmp_path: Path) -> None:
    model, data, _ = regression()
    posterior = fit(model, data, 2 * MAP(epochs=1), device="cuda")
    posterior.save(tmp_path / "p")
    here = load(tmp_path / "p", model)
    torch.testing.assert_close(
        here.predict(data[0]).mean, posterior.predict(data[0].cuda()).mean.cpu(), rtol=1e-4, atol=1e-4
    )
    check_save_and_load(MAP(epochs=1))


def test_scopes_leave_the_gpus_generator_alone() -> None:
    torch.cuda.init()
    before = torch.cuda.get_rng_state()
    with Noise(3, device=torch.device("cuda")).scope():
        first = torch.randn(4, device="cuda")
    with Noise(3, device=torch.device("cuda")).scope():
        assert torch.equal(first, torch.randn(4, device="cuda"))
    assert torch.equal(before, torch.cuda.get_rng_state())


def test_batch_norm_statistics_live_on_the_gpu() -> None:
    net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    _, data, _ = regression()
    posterior = fit(Model(net, Normal(0.0, 1.0), Gaussian(0.1)), data, 2 * MAP(epochs=1), device="cuda")
    assert posterior.sample(2)["1.running_mean"].is_cuda and not net[1].running_mean.is_cuda


@pytest.mark.parametrize(
    "method",
    [
        HMC(draws=4, warmup=10, leapfrog=3, dense=True),
        NUTS(draws=4, warmup=10, max_depth=3),
        MALA(draws=4, warmup=10),
        MCLMC(draws=4, warmup=20),
        AdjustedMCLMC(draws=4, warmup=20, most_steps=8),
        Metropolis(draws=4, warmup=10),
        SGLD(draws=4, warmup=2, step_size=1e-6),
        SGHMC(draws=4, warmup=2, step_size=1e-7),
    ],
    ids=lambda method: type(method).__name__,
)
def test_samplers_run_on_the_gpu_and_resume_there(method: Sampler, tmp_path: Path) -> None:
    model, data, _ = regression()
    plain, stored = (fit(model, data, 2 * method, device="cuda", folder=folder) for folder in (None, tmp_path / "run"))
    assert plain.theta.is_cuda and bool(plain.theta.isfinite().all())  # type: ignore[attr-defined]
    torch.testing.assert_close(plain.theta, stored.theta)  # type: ignore[attr-defined]


def test_constants_of_recorded_code_stay_where_they_are() -> None:
    """The graph knows their addresses only: freed, the next small tensors would be written over them."""
    code = Compiled(lambda u: (u * torch.tensor(3.0) + torch.tensor([1.0, 2.0]),))
    u = torch.randn(5, 2, device="cuda")
    code([u], [])
    others = [torch.full((2,), float(i), device="cuda") for i in range(2000)]
    torch.testing.assert_close(code([u], [])[0], 3 * u + torch.tensor([1.0, 2.0], device="cuda"))
    assert code.note is None and len(others) == 2000
