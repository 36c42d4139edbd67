"""MAP is the mode in weight space, ensembles are independent MAPs, and training is what a plain torch loop would do."""

from __future__ import annotations

import copy
import functools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from targets import DOUBLE, conjugate, linear, to_the_mode
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Dataset, TensorDataset

from nescio import InputError, Posterior, fit
from nescio.data.source import source
from nescio.infer import MAP, Constant, Cosine, Steps
from nescio.infer.method import Progress
from nescio.laws import HalfCauchy, Laplace, Learned, Normal
from nescio.likelihoods import Categorical, Gaussian
from nescio.model import Model
from nescio.nets import lenet5, mlp
from nescio.network import Network
from nescio.noise import Noise
from nescio.posterior import Draws
from nescio.target import Target


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Networks start the same in whatever order the tests run."""
    torch.manual_seed(0)


def toy(rows: int = 40, columns: int = 2, dtype: torch.dtype = DOUBLE, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns))
    y = np.sin(x).sum(1, keepdims=True) + 0.1 * rng.normal(size=(rows, 1))
    return torch.as_tensor(x).to(dtype), torch.as_tensor(y).to(dtype)


def tanh_net(*widths: int, dtype: torch.dtype = DOUBLE, seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return mlp(*widths, activation=nn.Tanh).to(dtype)


def theta(posterior: Posterior) -> Tensor:
    assert isinstance(posterior, Draws)
    return posterior.theta[:, 0]


def flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


# ---- the mode --------------------------------------------------------------------------------------------------------


def test_map_under_a_normal_prior_is_ridge_regression() -> None:
    known = conjugate()
    posterior = fit(known.model, known.data, to_the_mode(40))
    np.testing.assert_allclose(theta(posterior)[0], known.mean, rtol=0, atol=1e-6)
    x, y = (t.numpy() for t in known.data)
    ridge = np.linalg.solve(x.T @ x + 0.5**2 / 1.5**2 * np.eye(3), x.T @ y)[:, 0]
    np.testing.assert_allclose(posterior.point()["weight"][0], ridge, rtol=0, atol=1e-6)


def test_adam_gets_there_too_and_minibatches_come_close() -> None:
    known = conjugate()
    full = fit(known.model, known.data, MAP(epochs=600, lr=0.05, batch_size=40))
    np.testing.assert_allclose(theta(full)[0], known.mean, rtol=0, atol=1e-6)
    # Batches leave noise that the schedule takes to zero: within a tenth of the posterior's own width.
    batches = fit(known.model, known.data, MAP(epochs=200, lr=0.02, batch_size=16))
    assert np.abs((theta(batches)[0].numpy() - known.mean) / np.sqrt(np.diag(known.covariance))).max() < 0.1


@pytest.mark.parametrize("build", [lambda: tanh_net(2, 8, 3), lambda: lenet5(1, 3, 16).double()], ids=["mlp", "lenet5"])
def test_the_gradient_is_that_of_torchs_weight_decay(build: Callable[[], nn.Module]) -> None:
    """Mean cross-entropy with weight_decay = 1 / (N s²) and MAP under Normal(0, s): the same gradient."""
    net, rows, scale = build(), 12, 0.7
    shape = (rows, 2) if isinstance(net[0], nn.Linear) else (rows, 1, 16, 16)  # type: ignore[index]
    rng = np.random.default_rng(0)
    x, y = torch.as_tensor(rng.normal(size=shape)), torch.as_tensor(rng.integers(0, 3, rows))
    model = Model(net, Normal(0, scale), Categorical())
    target = Target(model, source((x, y)))
    u = flat(net)[None].requires_grad_()
    loss = -target.log_posterior(u, target.batch(None), {})[0].sum() / rows
    ours = torch.autograd.grad(loss, u)[0][0]

    plain = copy.deepcopy(net)
    decay = 1 / (rows * scale**2)
    optimizer = torch.optim.SGD(plain.parameters(), lr=1.0, weight_decay=decay)
    before = flat(plain)
    F.cross_entropy(plain(x), y).backward()
    optimizer.step()
    torch.testing.assert_close(ours, before - flat(plain), rtol=1e-12, atol=1e-14)


def test_training_is_a_plain_torch_loop_with_weight_decay() -> None:
    """Batch norm, momentum and all: after 30 full-batch steps weights and running statistics are those of a hand-written loop."""
    x, y = toy(32)
    net = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)).to(DOUBLE)
    scale, noise = 2.0, 0.5
    momentum = functools.partial(torch.optim.SGD, momentum=0.9)
    method = MAP(epochs=30, lr=1e-2, batch_size=32, optimizer=momentum, schedule=Constant())
    posterior = fit(Model(net, Normal(0, scale), Gaussian(noise)), (x, y), method)

    plain = copy.deepcopy(net).train()
    optimizer = torch.optim.SGD(plain.parameters(), lr=1e-2, momentum=0.9, weight_decay=1 / (32 * scale**2))
    for _ in range(30):
        optimizer.zero_grad()
        (0.5 * (plain(x) - y).square().mean() / noise**2).backward()
        optimizer.step()
    got = posterior.sample(1)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(got[name][0], value, rtol=1e-9, atol=1e-12)


def lasso(x: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
    """argmin ½‖y - Xw‖² + penalty ‖w‖₁ by coordinate descent."""
    w, squares = np.zeros(x.shape[1]), (x**2).sum(0)
    for _ in range(1000):
        for j in range(len(w)):
            rho = x[:, j] @ (y - x @ w + x[:, j] * w[j])
            w[j] = np.sign(rho) * max(abs(rho) - penalty, 0) / squares[j]
    return w


def test_under_a_laplace_prior_the_mode_is_sparse_and_the_mean_is_not() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 6))
    y = x @ np.array([1.0, -1.0, 0, 0, 0, 0]) + 0.5 * rng.normal(size=30)
    scale, noise = 0.03, 0.5
    model = linear(6, Laplace(0, scale), Gaussian(noise))
    data = torch.as_tensor(x), torch.as_tensor(y)[:, None]
    mode = theta(fit(model, data, MAP(epochs=1500, lr=0.02, batch_size=30)))[0].numpy()
    exact = lasso(x, y, noise**2 / scale)
    zero = exact == 0
    assert 0 < zero.sum() < 6
    # Adam steps back and forth over a kink by its last steps, which the cosine takes below 1e-3 x lr.
    np.testing.assert_allclose(mode, exact, rtol=0, atol=1e-3)
    # The posterior mean of one such coefficient, the others at the mode, by quadrature on the library's own density.
    target, j = Target(model, source(data)), int(np.flatnonzero(zero)[0])
    grid = torch.linspace(-1.5, 1.5, 4001, dtype=DOUBLE)
    u = torch.as_tensor(exact).repeat(len(grid), 1)
    u[:, j] = grid
    weight = target.log_density(u, target.batch(None)).softmax(0)
    mean = float(weight @ grid)
    sd = math.sqrt(float(weight @ grid**2) - mean**2)
    assert abs(mean) > 0.01
    assert float(weight[grid.abs() < 1e-3].sum()) < 0.05  # and no draw is ever exactly zero
    assert sd > 0.02


def test_the_mode_of_a_noise_scale_has_no_jacobian() -> None:
    """Eight rows: the mode over σ and the mode over log σ are far apart; MAP is the former."""
    x, y = toy(8, 1)
    model = linear(1, Normal(0, 1), Gaussian(HalfCauchy(1.0)))
    found = theta(fit(model, (x, y), to_the_mode(8)))[0].numpy()

    def minus_log_posterior(v: np.ndarray, jacobian: float) -> float:
        w, sigma = v[0], math.exp(v[1])
        likelihood = stats.norm.logpdf(y.numpy()[:, 0], w * x.numpy()[:, 0], sigma).sum()
        return -(likelihood + stats.norm.logpdf(w) + stats.halfcauchy.logpdf(sigma) + jacobian * v[1])

    modes = []
    for jacobian in (0.0, 1.0):
        best = optimize.minimize(minus_log_posterior, [1.0, -1.0], args=(jacobian,), method="BFGS", tol=1e-9).x
        modes.append([best[0], math.exp(best[1])])
    np.testing.assert_allclose(found, modes[0], rtol=0, atol=1e-5)
    assert modes[1][1] / modes[0][1] > 1.05  # the unconstrained mode is wider


def test_a_learned_noise_is_trained_and_a_learned_prior_is_not() -> None:
    x, y = toy(50)
    model = Model(tanh_net(2, 5, 1), Normal(0, Learned(1.3)), Gaussian(Learned(1.0)))
    posterior = fit(model, (x, y), to_the_mode(50, epochs=40))
    got = posterior.sample(1)
    assert got["prior.*.scale"].item() == 1.3
    residual = y - model.network.outputs({k: v for k, v in got.items() if k[0].isdigit()}, x)[0]
    rms = residual.square().mean().sqrt().item()  # its maximum: no prior, so the root mean square residual
    assert got["likelihood.noise"].item() == pytest.approx(rms, rel=1e-5)
    assert rms < 0.5


# ---- ensembles -------------------------------------------------------------------------------------------------------


def test_members_differ_and_are_the_same_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = toy(30, dtype=torch.float32)
    model = Model(tanh_net(2, 6, 1, dtype=torch.float32), Normal(0, 1), Gaussian(Learned(0.5)))
    method = 4 * MAP(epochs=100, batch_size=30)
    together = theta(fit(model, (x, y), method))
    assert model.network.vectorises(x)
    assert torch.cdist(together, together).fill_diagonal_(1.0).min() > 0.1
    monkeypatch.setattr(Network, "vectorises", lambda self, x, training=False: False)
    one_by_one = theta(fit(model, (x, y), method))
    # 100 steps in single precision, summed in another order
    torch.testing.assert_close(together, one_by_one, rtol=1e-5, atol=1e-5)


def test_members_see_the_data_in_different_orders_every_epoch() -> None:
    seen: list[Tensor] = []

    class Spy(Dataset[Any]):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            rows.append(index)
            return torch.zeros(1) + index, torch.zeros(1)

    rows: list[int] = []
    model = Model(tanh_net(1, 1, dtype=torch.float32), Normal(0, 1), Gaussian(1.0))
    fit(model, Spy(), 2 * MAP(epochs=3, batch_size=12))
    assert sorted(rows[-12:]) == list(range(12))  # all rows at a time: no order at all
    rows.clear()
    fit(model, Spy(), 2 * MAP(epochs=3, batch_size=4))
    start = len(rows) - 1 - 12 - 2 * 3 * 12  # looks at two rows first, at all of them last, and at one for its shape
    steps = torch.tensor(rows[start : start + 72]).reshape(3, 3, 2, 4)  # (epochs, steps, members, rows)
    for epoch in range(3):
        for member in range(2):
            order = steps[epoch, :, member].reshape(-1)
            assert sorted(order.tolist()) == list(range(12))  # each row once an epoch
            seen.append(order)
    assert len({tuple(order.tolist()) for order in seen}) == 6


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_posterior() -> None:
    x, y = toy(30, dtype=torch.float32)
    model = Model(tanh_net(2, 6, 1, dtype=torch.float32), Normal(0, 1), Gaussian(0.1))
    first, again, other = (theta(fit(model, (x, y), 2 * MAP(epochs=3), seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not bool((first == other).any())


def test_a_recurrent_net_that_does_not_vectorise_trains_as_an_ensemble() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x)[0][:, -1])

    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.normal(size=(40, 5, 1))).float()
    y = x.mean(1)
    model = Model(Last(), Normal(0, 1), Gaussian(0.1))
    posterior = fit(model, (x, y), 2 * MAP(epochs=60, lr=2e-2))
    assert not model.network.vectorises(x)
    assert posterior.count() == 2
    assert not torch.equal(*theta(posterior))
    assert posterior.predict(x).mean.sub(y).square().mean() < 0.2 * y.square().mean()


def test_a_module_without_reset_parameters_cannot_be_restarted() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.a * x

    model = Model(Scale(), Normal(0, 1), Gaussian(0.1))
    data = torch.ones(4, 1), torch.ones(4, 1)
    with pytest.raises(InputError, match=r"reset_parameters.*Scale"):
        fit(model, data, 2 * MAP(epochs=1))
    assert theta(fit(model, data, MAP(epochs=50))).item() == pytest.approx(1.0, abs=0.05)
    assert theta(fit(model, data, MAP(epochs=2) >> 2 * MAP(epochs=2))).shape == (2, 1)


# ---- minibatches, early stopping, schedules --------------------------------------------------------------------------


def test_the_gradient_of_an_epoch_of_batches_is_the_full_one() -> None:
    x, y = toy(50)
    model = Model(tanh_net(2, 5, 1), Normal(0, 1), Gaussian(HalfCauchy(1.0)))
    target = MAP().view(Target(model, source((x, y))), Noise(0))
    u = torch.as_tensor(np.random.default_rng(0).normal(size=(1, model.dim))).requires_grad_()
    order = Noise(0).permutations(1, 50)

    def gradient(index: Tensor | None) -> Tensor:
        return torch.autograd.grad(target.log_posterior(u, target.batch(index), {})[0].sum(), u)[0]

    batches = [order[:, i : i + 16] for i in range(0, 50, 16)]  # the last one holds two rows
    mean = torch.stack([gradient(index) * index.shape[1] / 50 for index in batches]).sum(0)
    torch.testing.assert_close(mean, gradient(None), rtol=1e-10, atol=1e-10)


def test_early_stopping_returns_the_best_epoch() -> None:
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.normal(size=(60, 8)))
    y = torch.as_tensor(rng.normal(size=(60, 1)))  # nothing to learn, so a net of this size must overfit
    model = Model(tanh_net(8, 50, 1), Normal(0, 1), Gaussian(0.5))
    method = MAP(epochs=200, lr=1e-2, batch_size=48, hold_out=0.2, patience=5)
    posterior = fit(model, (x, y), 3 * method, seed=3)
    trace, epochs = posterior.info["held_out"], posterior.info["epochs"]
    assert epochs < 200
    view = method.view(Target(model, source((x, y))), model.noise(3, "fit"))
    assert view.held is not None
    assert (view.size, view.held.size) == (48, 12)
    rows = torch.cat([view.source.rows(None)[0], view.held.rows(None)[0]])
    assert torch.equal(rows.sort(0).values, x.sort(0).values)  # kept and held out are a partition
    score = view.log_likelihood(theta(posterior), {}, view.held) / view.held.size
    assert score.mean().item() >= max(trace) - 1e-6  # each member's best is at least the best average
    assert score.mean().item() > trace[-1] + 0.01  # and not where it stopped
    # one member alone: exactly the best of its trace, and stopped `patience` epochs after it
    alone = fit(model, (x, y), method, seed=3)
    best = view.log_likelihood(theta(alone), {}, view.held).item() / view.held.size
    assert best == pytest.approx(max(alone.info["held_out"]), abs=1e-6)  # the trace is rounded to six places
    assert len(alone.info["held_out"]) - 1 - int(np.argmax(alone.info["held_out"])) == 6


def test_schedules() -> None:
    assert [Constant()(t) for t in (0.0, 0.9)] == [1.0, 1.0]
    np.testing.assert_allclose([Cosine()(t) for t in (0.0, 0.5, 1.0)], [1.0, 0.5, 0.0], atol=1e-15)
    assert Cosine(0.1)(1.0) == pytest.approx(0.1)
    np.testing.assert_allclose([Steps(0.5)(t) for t in (0.0, 0.49, 0.5, 0.9)], [1.0, 1.0, 0.1, 0.1])
    np.testing.assert_allclose([Steps((0.3, 0.6), 0.5)(t) for t in (0.2, 0.3, 0.7)], [1.0, 0.5, 0.25])


def test_a_schedule_multiplies_the_step_over_the_whole_run() -> None:
    x, y = toy(20)
    model, parts = linear(2, Normal(0, 1), Gaussian(1.0)), []

    def spy(part: float) -> float:
        parts.append(part)
        return 0.25

    spied = fit(model, (x, y), MAP(epochs=2, lr=0.4, batch_size=8, optimizer=torch.optim.SGD, schedule=spy))
    np.testing.assert_allclose(parts, np.arange(6) / 6)
    plain = fit(model, (x, y), MAP(epochs=2, lr=0.1, batch_size=8, optimizer=torch.optim.SGD, schedule=Constant()))
    torch.testing.assert_close(theta(spied), theta(plain), rtol=1e-12, atol=0)


def test_progress_is_told_and_ends_at_its_total() -> None:
    x, y = toy(20)
    told: list[Progress] = []
    fit(linear(2, Normal(0, 1), Gaussian(1.0)), (x, y), 2 * MAP(epochs=3), progress=told.append)
    assert told[-1].done == told[-1].total
    assert told[-1].method == "MAP"
    assert math.isfinite(told[-1].numbers["loss"])


# ---- the network's own state -----------------------------------------------------------------------------------------


def bytes_of(net: nn.Module) -> dict[str, bytes]:
    return {name: t.detach().numpy().tobytes() for name, t in net.state_dict().items()}


def test_statistics_belong_to_the_posterior_and_the_module_is_not_touched() -> None:
    x, y = toy(40, dtype=torch.float32)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    before, mode = bytes_of(net), net.training
    posterior = fit(Model(net, Normal(0, 1), Gaussian(0.1)), (x + 3, y), 2 * MAP(epochs=5))
    posterior.predict(x + 3)
    assert bytes_of(net) == before
    assert net.training == mode
    assert all(p.grad is None for p in net.parameters())
    got = posterior.sample(2)
    assert got["1.num_batches_tracked"].tolist() == [15, 15]  # 5 epochs of 16 + 16 + 8
    assert bool((got["1.running_mean"] != 0).all())
    assert not torch.equal(*got["1.running_mean"])  # each member has its own
    own = copy.deepcopy(net)  # and prediction uses them
    own.load_state_dict({name: got[name][0] for name in own.state_dict()})
    want = own.eval()(x + 3)
    torch.testing.assert_close(posterior.model.observed(got, x + 3).mean[0], want, rtol=1e-5, atol=1e-6)


def test_dropout_is_on_in_training_and_off_at_prediction() -> None:
    x, y = toy(40, dtype=torch.float32)
    net = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 1))
    model = Model(net, Normal(0, 1), Gaussian(0.1))
    target = Target(model, source((x, y)))
    u = flat(net).repeat(2, 1)
    with Noise(1).scope():
        training = target.log_posterior(u, target.batch(None), {})[0]
    assert training[0] != training[1]  # equal weights, each chain its own mask
    evaluation = target.log_density(u, target.batch(None))
    assert evaluation[0] == evaluation[1]
    assert evaluation[0] not in training
    posterior = fit(model, (x, y), 2 * MAP(epochs=3))
    assert torch.equal(posterior.predict(x).mean, posterior.predict(x).mean)

    frozen = Model(net.eval(), Normal(0, 1), Gaussian(0.1))  # handed over in eval mode: it stays so
    still = Target(frozen, source((x, y)))
    value = still.log_posterior(u, still.batch(None), {})[0]
    assert value[0] == value[1]


def test_on_moves_the_pattern_alone() -> None:
    x, y = toy(30, dtype=torch.float32)
    net = tanh_net(2, 4, 1, dtype=torch.float32)
    model = Model(net, Normal(0, 1), Gaussian(Learned(0.5)))
    got = fit(model, (x, y), MAP(epochs=5).on("2.*")).point()
    state = net.state_dict()
    assert torch.equal(got["0.weight"], state["0.weight"])
    assert torch.equal(got["0.bias"], state["0.bias"])
    assert bool((got["2.weight"] != state["2.weight"]).all())
    assert got["likelihood.noise"].item() == 0.5  # the noise is not named, so it stays
    assert fit(model, (x, y), MAP(epochs=5).on("likelihood.*")).point()["likelihood.noise"].item() != 0.5
    with pytest.raises(InputError, match="a pattern must match a name"):
        fit(model, (x, y), MAP(epochs=5).on("nothing.*"))


# ---- data in every form ----------------------------------------------------------------------------------------------


class Add(nn.Module):
    """Two inputs, by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.layer(torch.cat([left, right], -1))


class Rows(Dataset[Any]):
    def __init__(self, x: Any, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Any:
        return tree_map(lambda t: t[index], self.x), self.y[index]


def batches(x: Any, y: Tensor) -> Iterator[Any]:
    for start in range(0, len(y), 7):
        piece = slice(start, start + 7)
        yield tree_map(lambda t, piece=piece: t[piece], x), y[piece]


def test_every_form_of_data_gives_the_same_posterior() -> None:
    x, y = toy(30, dtype=torch.float32)
    torch.manual_seed(0)
    plain, two = nn.Linear(2, 1), Add()
    two.layer.load_state_dict(plain.state_dict())
    method = 2 * MAP(epochs=3, batch_size=8)
    want = theta(fit(Model(plain, Normal(0, 1), Gaussian(0.1)), (x, y), method))
    loader: Callable[[Dataset[Any]], DataLoader[Any]] = lambda rows: DataLoader(rows, 8, shuffle=True)  # noqa: E731
    forms: list[Any] = [[x, y], TensorDataset(x, y), Rows(x, y), batches(x, y)]
    forms += [loader(TensorDataset(x, y)), loader(Rows(x, y))]
    for data in forms:
        got = theta(fit(Model(plain, Normal(0, 1), Gaussian(0.1)), data, method))
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    for inputs in ((x[:, :1], x[:, 1:]), {"right": x[:, 1:], "left": x[:, :1]}):
        for data in ((inputs, y), Rows(inputs, y), loader(Rows(inputs, y)), batches(inputs, y)):
            posterior = fit(Model(two, Normal(0, 1), Gaussian(0.1)), data, method)
            torch.testing.assert_close(theta(posterior), want, rtol=1e-5, atol=1e-6)
            assert posterior.predict(inputs).mean.shape == (30, 1)


def test_a_loader_says_the_batch_size() -> None:
    x, y = toy(30, dtype=torch.float32)
    model = Model(nn.Linear(2, 1), Normal(0, 1), Gaussian(0.1))
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    torch.testing.assert_close(
        theta(fit(model, loader, MAP(epochs=2))), theta(fit(model, (x, y), MAP(epochs=2, batch_size=8)))
    )


def test_a_network_may_warn() -> None:
    """Its warnings are its own: they neither stop the fit nor make it slow."""

    class Wary(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            warnings.warn("old ways", UserWarning, stacklevel=1)
            return super().forward(input)

    x, y = toy(20, dtype=torch.float32)
    model = Model(Wary(2, 1), Normal(0, 1), Gaussian(0.1))
    with pytest.warns(UserWarning, match="old ways"):
        posterior = fit(model, (x, y), 2 * MAP(epochs=1))
    assert posterior.count() == 2
    assert model.network.vectorises(x)


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_a_submodule_must_not_take_the_models_own_names() -> None:
    for name in ("prior", "likelihood"):
        with pytest.raises(InputError, match=r"the model's own names.*rename it"):
            Model(nn.ModuleDict({name: nn.Linear(1, 1)}), Normal(0, 1), Gaussian(0.1))


def test_wrong_use_is_refused_in_three_parts() -> None:
    x, y = toy(20)
    model = linear(2, Normal(0, 1), Gaussian(0.1))
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: fit(model, (x, y), MAP(batch_size=21)), r"batch_size must lie in 1 ... 20.*; got 21; leave it out"),
        (lambda: fit(model, (x, y), MAP(batch_size=0)), "batch_size must lie in"),
        (lambda: MAP(epochs=0), "epochs and lr must be positive; got epochs=0"),
        (lambda: MAP(lr=-1.0), "epochs and lr must be positive"),
        (lambda: MAP(hold_out=1.0), "hold_out is a part of the data"),
        (lambda: fit(model, (x[:1], y[:1]), MAP(hold_out=0.5)), "some rows must remain"),
        (lambda: MAP() * 3, "replicas are written n"),
        (lambda: 0 * MAP(), "at least 1"),
        (lambda: fit(model, (x, y), MAP(), temperature=0.0), "temperature must be a positive number"),
        (lambda: fit(model, (x, y), MAP), "method must be a Method"),  # type: ignore[arg-type]
        (
            lambda: fit(model, (x, y), MAP(lr=1e200, optimizer=torch.optim.SGD, schedule=Constant())),
            "the loss must stay finite; got .*; lower lr",
        ),
    ]
    for call, message in wrong:
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert all((caught.value.must, caught.value.got, caught.value.remedy))
