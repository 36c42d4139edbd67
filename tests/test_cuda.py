"""The same on a GPU, where there is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from check_method import check_save_and_load, regression
from conjugate import ROWS, conjugate, gaussian, variational
from torch import nn

from nescio import Model, evaluate, families, fit, load, narrow
from nescio.compiled import Compiled
from nescio.data.source import source
from nescio.families import (
    BernoulliDropout,
    ConcreteDropout,
    Family,
    FullRank,
    GaussianDropout,
    LowRank,
    MeanField,
    MultiplicativeFlow,
    NetDropout,
    VariationalDropout,
)
from nescio.generative import decode, encode, generate, impute, log_likelihood
from nescio.infer import (
    HMC,
    MALA,
    MAP,
    MCLMC,
    NUTS,
    SGHMC,
    SGLD,
    VI,
    AdjustedMCLMC,
    Laplace,
    Method,
    Metropolis,
    NeuralLinear,
)
from nescio.infer.sampler import Sampler
from nescio.laws import HalfCauchy, HalfNormal, HalfStudentT, Law, LogUniform, MatrixNormal, Normal, SpikeSlab
from nescio.likelihoods import Categorical, ContinuousBernoulli, Gaussian, Latent
from nescio.nets import lenet5, mlp, vae
from nescio.noise import Noise
from nescio.posterior import Draws, GaussianPosterior
from nescio.target import Target

WIDENED = narrow.widened
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


@pytest.mark.parametrize("half", [True, False])
def test_convolutions_of_few_channels_are_widened(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            body = [nn.Conv2d(3, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 16, 3, padding=1), nn.SiLU()]
            self.body = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                return self.body(x).float()

    x = torch.randn(40, 3, 12, 12).to(memory_format=torch.channels_last)
    model = Model(Net(), Normal(0.0, 1.0), Categorical()).to("cuda")
    target = Target(model, source((x, torch.randint(10, (40,)))).to(torch.device("cuda")))
    u, batch, widened = 0.1 * torch.randn(1, model.dim, device="cuda"), target.batch(None), []
    monkeypatch.setattr(narrow, "widened", lambda w, n: widened.append(n) or WIDENED(w, n))
    quick = replace(target, code={})
    (value, gradient), (wanted, slope) = quick.value_and_grad(u, batch), target.value_and_grad(u, batch)
    assert quick.code is not None and [code.note for code in quick.code.values()] == [None]
    assert widened == [4, 4]
    close = 0.02 if half else 0.005
    torch.testing.assert_close(value, wanted, rtol=close, atol=close)
    assert float((gradient - slope).norm()) < close * float(slope.norm())


@pytest.mark.parametrize(
    "method",
    [
        HMC(draws=3, warmup=3, leapfrog=5, step_size=1e-3),
        NUTS(draws=3, warmup=0, max_depth=7, step_size=1e-4),  # longer than one set of coins
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


@pytest.mark.parametrize(
    "method",
    [
        HMC(draws=80, warmup=10, leapfrog=5, step_size=1e-3),
        NUTS(draws=40, warmup=10, max_depth=3, step_size=1e-3),
        MCLMC(draws=250, warmup=0, step_size=1e-2),
        MAP(epochs=100, batch_size=20),
    ],
    ids=lambda method: type(method).__name__,
)
def test_kernels_of_short_runs_are_recorded_without_a_compiler(
    method: Sampler | MAP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same kernels in the same order: a few hundred steps end where the plain ones do, to rounding."""
    model, (x, y), _ = regression()
    model, x, y = model.double(), x.double(), y.double()
    plain = fit(model, (x, y), 2 * method, device="cuda", compile=False)
    monkeypatch.setattr("nescio.compiled.machine_code", None)  # a call would raise, and `compiled` would say so
    quick = fit(model, (x, y), 2 * method, device="cuda")
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


@pytest.mark.parametrize(
    "method", [2 * MAP(epochs=1), MAP(epochs=1) >> Laplace(), MAP(epochs=1) >> NeuralLinear()], ids=repr
)
def test_inputs_and_outcomes_on_the_cpu_are_moved(method: Method) -> None:
    model, data, _ = regression()
    posterior = fit(model, data, method, device="cuda")
    torch.testing.assert_close(posterior.predict(data[0]).mean, posterior.predict(data[0].cuda()).mean)
    assert evaluate(posterior, data)["rmse"] >= 0
    if isinstance(posterior, GaussianPosterior):
        assert posterior.linearize().predict(data[0]).mean.is_cuda


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
    code = Compiled(lambda u: (u * torch.tensor(3.0) + torch.tensor([1.0, 2.0], device=u.device),))
    u = torch.randn(5, 2, device="cuda")
    code([u], [])
    others = [torch.full((2,), float(i), device="cuda") for i in range(2000)]
    torch.testing.assert_close(code([u], [])[0], 3 * u + torch.tensor([1.0, 2.0], device="cuda"))
    assert code.note is None and len(others) == 2000


# ---- variational inference and dropout -------------------------------------------------------------------------------

GPU = torch.device("cuda")
Z = 6.11  # a little stricter than chance.py, which needs scipy


@pytest.mark.parametrize("family", [MeanField(sd=0.04), FullRank(sd=0.02, path_gradient=True)], ids=repr)
def test_variational_inference_finds_the_exact_posterior_on_the_gpu(family: MeanField | FullRank) -> None:
    """As on the CPU (test_vi.py), where noise is another: within 1%, the bound below the evidence."""
    exact, start = conjugate(), MAP(epochs=300, lr=0.1, batch_size=ROWS)
    several = {"lr": 0.005, "samples": 300} if isinstance(family, MeanField) else {"lr": 0.03}
    method = start >> VI(family, epochs=600, batch_size=ROWS, **several)
    posterior = variational(fit(exact.model, (exact.x, exact.y), method, device=GPU))
    q, sd = gaussian(posterior), exact.covariance.diagonal().sqrt()
    assert q.loc.device.type == GPU.type
    if isinstance(family, MeanField):
        sd = exact.covariance.inverse().diagonal().rsqrt()
        assert float((q.variance.cpu() / sd.square() - 1).abs().max()) < 0.01
    else:
        assert float((q.covariance_matrix.cpu() - exact.covariance).norm() / exact.covariance.norm()) < 0.01
    assert float(((q.loc.cpu() - exact.mean) / sd).abs().max()) < 0.01
    assert posterior.info["elbo"] < exact.evidence + 6 * posterior.info["elbo_se"]


@pytest.mark.parametrize("kind", ["bernoulli", "concrete", "own"])
def test_dropout_on_the_gpu_is_that_on_the_cpu(kind: str, tmp_path: Path) -> None:
    """Trained there, loaded here: averaged weights give the same, and many draws the same moments (false alarms: below 1 in 10^6)."""
    _, (x, y), _ = regression()
    net = nn.Sequential(nn.Linear(x.shape[1], 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))
    model = Model(net, Normal(0.0, 1.0), Gaussian(0.3))
    rates = {"0.*": 0.0, "*": 0.2}
    family = {"bernoulli": BernoulliDropout(rates), "concrete": ConcreteDropout(rates), "own": NetDropout()}[kind]
    there = variational(fit(model, (x, y), VI(family, epochs=20, batch_size=20), device=GPU))
    there.save(tmp_path / "q")
    here = variational(load(tmp_path / "q", model))
    torch.testing.assert_close(
        there.at_mean().predict(x.to(GPU)).mean.cpu(), here.at_mean().predict(x).mean, rtol=1e-4, atol=1e-5
    )
    draws = 4000
    a, b = (p.functions(place, draws, 0)[0].cpu().double() for p, place in ((there, x.to(GPU)), (here, x)))
    assert a.shape == (draws, len(x), 1) and float(a.std(0).min()) > 0
    error = ((a.var(0) + b.var(0)) / draws).sqrt()
    assert float(((a.mean(0) - b.mean(0)) / error).abs().max()) < Z
    spread = (a.var(0) - b.var(0)) / ((a - a.mean(0)).square().var(0) + (b - b.mean(0)).square().var(0)).div(
        draws
    ).sqrt()
    assert float(spread.abs().max()) < Z


UNIT = Normal(0.0, 1.0)
RECORDED: list[tuple[Family, Law]] = [
    (MeanField(), Normal(0.0, HalfCauchy(1.0))),
    (MeanField(), Normal(0.0, HalfCauchy(HalfCauchy(0.1).per("net")).per("unit"))),
    (MeanField(), Normal(0.0, HalfStudentT(3.0, HalfNormal(0.1).per("net")).per("unit"))),
    (MeanField(), SpikeSlab(0.5, 1.0, 0.1)),
]
RECORDED += [(family, UNIT) for family in (MeanField(), LowRank(), families.MatrixNormal(), MultiplicativeFlow())]
RECORDED += [
    (family, UNIT) for family in (BernoulliDropout(0.2), ConcreteDropout(0.2), GaussianDropout(0.2), NetDropout())
]
RECORDED += [(VariationalDropout(), LogUniform())]


@pytest.mark.parametrize(("family", "law"), RECORDED, ids=repr)
def test_recorded_variational_steps_are_the_plain_ones(family: Family, law: Law) -> None:
    """Of convolutions, norms whose statistics move, and batches of two sizes, while the divergence is faded in."""
    x, y = Noise(0).at("x").normal(50, 1, 8, 8), Noise(0).at("y").integers(0, 3, 50)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 3)
    )
    method, model = VI(family, epochs=3, lr=1e-3, batch_size=16, kl_warmup=0.5), Model(net, law, Categorical())
    plain, recorded = (variational(fit(model, (x, y), method, device=GPU, compile=c)) for c in (False, True))
    assert recorded.info["compiled"] is True and "compiled" not in plain.info
    for a, b in zip(plain.q.parameters(), recorded.q.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    for name, b in plain.statistics.items():
        torch.testing.assert_close(b, recorded.statistics[name], rtol=1e-3, atol=1e-4)


def test_variational_training_on_the_gpu_under_autocast_resumes(tmp_path: Path) -> None:
    _, data, _ = regression()
    model, method = Model(mlp(data[0].shape[1], 8, 1), Normal(0.0, 1.0), Gaussian(0.3)), VI(epochs=3, hold_out=0.2)
    plain, stored = (fit(model, data, method, device=GPU, folder=folder) for folder in (None, tmp_path / "run"))
    for a, b in zip(variational(plain).q.parameters(), variational(stored).q.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    _, loss = VI(VariationalDropout()).objective(Model(mlp(2, 8, 1), LogUniform(), Gaussian(0.3)).to(GPU), data)
    x, y = (t.to(GPU) for t in data)
    with Noise(0, device=GPU).scope(), torch.autocast(GPU.type, torch.bfloat16):
        loss(x, y).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in loss.parameters())


def test_networks_side_by_side_are_trained_by_one_graph_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded steps of reproduce/uci_stack.py: a second graph after the first is gone, and both learn as on the CPU."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parent.parent / "reproduce"))
    from uci_stack import Rows, Stack, train

    x = Noise(0).at("x").normal(4, 300, 3)
    y = x[..., 0] + 0.1 * Noise(0).at("y").normal(4, 300)
    for device in (GPU, GPU, torch.device("cpu")):
        stack = Stack(3, 20, torch.full((4,), 0.01), torch.zeros(4), Noise(0)).to(device)
        rows = Rows(x.to(device), y.to(device), torch.arange(4, device=device))
        train(stack, rows, 300, Noise(1, device=device))
        with torch.no_grad(), Noise(2, device=device).scope():
            error = (stack(rows.x) - rows.y).square().mean(1)
        assert float(error.max()) < 0.2, error


def test_a_vae_on_the_gpu() -> None:
    """Steps recorded as a graph, with the noise of z handed in, are the plain ones; functions of the posterior live there, too."""
    x = torch.rand(64, 12, generator=torch.Generator().manual_seed(0)).cuda()
    model = Model(vae(12, 8, 2), Normal(0.0, 1.0), Latent(ContinuousBernoulli(), samples=2)).cuda()
    plain, code = (fit(model, (x, x), 2 * MAP(epochs=4, batch_size=16), compile=c) for c in (False, True))
    assert code.info["compiled"] is True
    assert isinstance(plain, Draws) and isinstance(code, Draws)
    torch.testing.assert_close(plain.theta, code.theta, rtol=1e-3, atol=1e-4)
    found = log_likelihood(code, x, 50, draws=2)
    assert found.value.is_cuda and bool(found.value.isfinite().all())
    assert generate(code, 5).mean.is_cuda and encode(code, x).mean.shape == (64, 2)
    away = x.cpu()  # is moved, as by `fit` and `predict`
    torch.testing.assert_close(log_likelihood(code, away, 50, draws=2).value, found.value)
    assert decode(code, torch.zeros(3, 2)).mean.is_cuda and encode(code, away).mean.is_cuda
    assert impute(code, away[:3], away[:3] > 0.5, steps=5, warmup=2, kept=2).draws.shape == (2, 3, 12)
    doubt = fit(model, (x, x), MAP(epochs=1) >> VI(MeanField(), epochs=1).on("decoder.*"))
    assert doubt.predict(x, draws=3).mean.is_cuda


def test_recorded_steps_of_a_network_with_dropout_are_the_plain_ones() -> None:
    """Kernels that are replayed draw from the generator of their step."""
    x, y = Noise(0).at("x").normal(64, 3), Noise(0).at("y").normal(64, 1)
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    model, method = Model(net, Normal(0, 1), Gaussian(0.5)), MAP(epochs=60, batch_size=16)
    plain, recorded = (fit(model, (x, y), method, device=GPU, compile=c) for c in (False, None))
    assert recorded.info["compiled"] is True and "compiled" not in plain.info
    torch.testing.assert_close(plain.ends().theta, recorded.ends().theta, rtol=0, atol=1e-5)
