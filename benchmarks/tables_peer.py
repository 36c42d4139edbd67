"""One fit of one peer, in the peers' environment: reads arrays, writes the Gaussian components (draws, points) of its predictive."""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")


def boosting(x: np.ndarray, y: np.ndarray, new: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.ensemble import GradientBoostingRegressor

    held = np.random.default_rng(seed).permutation(len(y))[: len(y) // 10]
    kept = np.setdiff1d(np.arange(len(y)), held)
    errors = y[held] - GradientBoostingRegressor(random_state=seed).fit(x[kept], y[kept]).predict(x[held])
    mean = GradientBoostingRegressor(random_state=seed).fit(x, y).predict(new)
    return mean[None], np.full((1, len(mean)), np.sqrt(np.mean(errors**2)))


def gaussian_process(x: np.ndarray, y: np.ndarray, new: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    units = StandardScaler().fit(x)
    kernel = ConstantKernel(1.0) * RBF(np.ones(x.shape[1]), (1e-2, 1e3)) + WhiteKernel(0.1, (1e-6, 1e1))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=seed)
    mean, sd = model.fit(units.transform(x), y).predict(units.transform(new), return_std=True)  # noise included
    return mean[None], sd[None]


def ngboost(x: np.ndarray, y: np.ndarray, new: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from ngboost import NGBRegressor

    order = np.random.default_rng(seed).permutation(len(y))
    held, kept = order[: len(y) // 10], order[len(y) // 10 :]
    model = NGBRegressor(random_state=seed, verbose=False, n_estimators=2000)
    model.fit(x[kept], y[kept], X_val=x[held], Y_val=y[held], early_stopping_rounds=50)
    found = model.pred_dist(new)
    return found.params["loc"][None], found.params["scale"][None]


def bde(x: np.ndarray, y: np.ndarray, new: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from bde import BdeRegressor

    mean, sd = x.mean(0), x.std(0)
    units = np.where(sd > 0, sd, 1.0)
    loc, scale = y.mean(), y.std()
    model = BdeRegressor(
        hidden_layers=[16, 16], n_members=8, seed=seed, epochs=1000, patience=10, validation_split=0.15, lr=1e-3,
        weight_decay=1e-4, warmup_steps=5000, n_samples=2000, n_thinning=2,
    )  # fmt: skip
    model.fit(x=(x - mean) / units, y=(y - loc) / scale)
    raw = np.asarray(model.predict((new - mean) / units, raw=True), dtype=np.float64)  # (members, draws, points, 2)
    raw = raw[:, :: max(1, raw.shape[1] // 100)].reshape(-1, *raw.shape[2:])
    return loc + scale * raw[..., 0], scale * (np.logaddexp(0, raw[..., 1]) + 1e-6)


def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    given = np.load(spec["given"])
    x, y, new = (given[key].astype(np.float64) for key in ("x", "y", "x_test"))
    began = time.perf_counter()
    fitted = {"boosting": boosting, "gaussian_process": gaussian_process, "ngboost": ngboost, "bde": bde}[
        spec["library"]
    ]
    loc, scale = fitted(x, y, new, spec["seed"])
    np.savez(spec["answer"], loc=loc, scale=scale, seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main()
