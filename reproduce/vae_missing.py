"""The right half of digits of which the left half was seen, by the posterior over z."""

from __future__ import annotations

import torch
from vae_place import ADAM, Job, Line, Place, digits, mean, net_of, spread

from nescio import Model
from nescio.generative import impute
from nescio.infer import MAP
from nescio.laws import Flat
from nescio.likelihoods import ContinuousBernoulli, Latent
from nescio.nets import vae

SHOWN = 10


def missing(job: Job, place: Place) -> Line:
    """How often a chain moves, how near another chain comes, and the error of pixels beside that of the mean picture."""
    many = SHOWN if place.quick else job.get("test", SHOWN)
    train, test = digits(200 if place.quick else job["images"], many)
    x, y = spread(train.x, "train").to(place.device), spread(test.x, "test").to(place.device)
    model = Model(net_of(0, vae, 784, 500, 20), Flat(), Latent(ContinuousBernoulli()))
    method = MAP(epochs=job["epochs"], lr=1e-3, batch_size=100, optimizer=ADAM)
    posterior = place.fit(model, (x, x), method, 0, f"missing-{job['images']}")
    seen = torch.ones(many, 28, 28, dtype=torch.bool, device=place.device)
    seen[:, :, 14:] = False
    seen = seen.flatten(1)
    steps, warmup = (20, 10) if place.quick else (500, 200)
    first, second = (impute(posterior, y, seen, steps=steps, warmup=warmup, seed=s) for s in (0, 1))
    gone = ~seen
    some = {"x": y[:SHOWN], "mean": first.mean[:SHOWN], "draws": first.draws[[0, 4, 9], :SHOWN]}
    place.pictures(f"missing-{job['images']}", **some)
    return {
        "acceptance": mean(first.acceptance),
        "rmse of missing pixels": rmse((first.mean - y)[gone]),
        "rmse of the mean digit there": rmse((x.mean(0) - y)[gone]),
        "rmse between two chains there": rmse((first.mean - second.mean)[gone]),
    }


def rmse(x: torch.Tensor) -> float:
    return round(float(x.double().square().mean().sqrt()), 4)
