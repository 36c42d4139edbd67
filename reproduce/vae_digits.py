"""Digits: the tutorial's thousand, binarised MNIST, and grey pixels under the wrong and the right likelihood."""

from __future__ import annotations

from dataclasses import replace

import torch
from digits import by_class, official
from torch import Tensor, nn
from torch.nn import functional as F
from vae_place import ADAM, SHOWN, Job, Line, Place, digits, mean, net_of, spread

from nescio import Model
from nescio.generative import encode, generate, log_likelihood, manifold, reconstruct
from nescio.infer import MAP
from nescio.infer.schedule import Cosine, Steps
from nescio.laws import Flat
from nescio.likelihoods import Bernoulli, ContinuousBernoulli, Latent, Likelihood
from nescio.likelihoods.tilted import TiltedUniform
from nescio.nets import VAE, autoencoder, vae
from nescio.noise import Noise
from nescio.posterior import Draws, Posterior


def tutorial(job: Job, place: Place) -> Line:
    """784-500-500-z and back, Bernoulli on grey pixels, Adam 1e-3 then 1e-4, batches of 100."""
    each = 5 if place.quick else 100
    train, test = by_class(official()[0], 0, each), by_class(official()[0], each, each)
    train, test = train.to(place.device), test.to(place.device)
    hidden, epochs, seed, latent = 500, job["epochs"], job["seed"], job["latent"]
    plain = job["what"] == "autoencoder"
    net = net_of(seed, autoencoder if plain else vae, 784, hidden, latent)
    likelihood: Likelihood = Bernoulli(grey=True) if plain else Latent(Bernoulli(grey=True))
    method = MAP(epochs=epochs, lr=1e-3, batch_size=min(100, len(train.x)), optimizer=ADAM, schedule=Steps(0.5))
    model = Model(net, Flat(), likelihood)
    posterior = place.fit(model, (train.x, train.x), method, seed, f"{job['what']}-{latent}-{seed}")
    found: Line = {"elbo": [-x for x in posterior.info["loss"]]}
    for name, part in {"train": train, "test": test}.items():
        at_mean = -F.binary_cross_entropy(reconstruct(posterior, part.x).mean, part.x, reduction="none").sum(1)
        found[f"{name}_fit_at_mean"] = mean(at_mean)
        if not plain:
            found[f"{name}_elbo"] = mean(bound(posterior, part.x, 10))
    if seed == 0:
        some = torch.linspace(0, 10 * each - 1, SHOWN).long()
        shown = {"train": train.x[some], "test": test.x[some]}
        arrays = {
            f"{k}_{w}": p for k, x in shown.items() for w, p in (("x", x), ("back", reconstruct(posterior, x).mean))
        }
        if not plain:
            arrays |= {
                "codes": encode(posterior, test.x).mean,
                "labels": test.y,
                "samples": generate(posterior, 100).mean,
            }
        if not plain and latent == 2:
            arrays["manifold"] = manifold(posterior, 20, 2.0)
        place.pictures(f"{job['what']}-{latent}", **arrays)
    return found


def bound(posterior: Posterior, x: Tensor, samples: int) -> Tensor:
    """The ELBO of each row, with so many draws of the code."""
    own = posterior.model
    assert isinstance(own.likelihood, Latent)
    again = Model(own.network.net, own.laws, replace(own.likelihood, samples=samples))
    return again.log_prob({name: p[None] for name, p in posterior.point().items()}, x, x)[0]


NETS = {"200 tanh": (200, 50, nn.Tanh), "500 relu": (500, 50, nn.ReLU)}


def binarised(job: Job, place: Place) -> Line:
    """Pixels thrown anew at each call; -log p(x) of test images thrown once, at 1, 100 and 5000 samples."""
    train, test = digits(200, 50) if place.quick else digits(60_000, 10_000)
    hidden, latent, activation = NETS[job["net"]]
    net = net_of(0, vae, 784, hidden, latent, activation=activation, binarise=True)
    likelihood = Latent(Bernoulli(), samples=job["k"], importance=job["k"] > 1)
    method = MAP(epochs=job["epochs"], lr=1e-3, batch_size=min(250, len(train.x)), optimizer=ADAM, schedule=Cosine())
    x = train.x.to(place.device)
    name = f"binarised-{job['net'].replace(' ', '-')}-{job['k']}"
    posterior = place.fit(Model(net, Flat(), likelihood), (x, x), job["members"] * method, 0, name)
    assert isinstance(posterior, Draws)
    thrown = Noise(1).at("thrown").uniform(*test.x.shape)
    seen = (thrown < test.x).to(test.x.dtype).to(place.device)
    found: Line = {"loss": posterior.info["loss"][-1]}
    for samples in (1, 100, 10 if place.quick else 5000):
        members = [posterior.chains(slice(i, i + 1)) for i in range(job["members"])]
        each = [log_likelihood(member, seen, samples) for member in members]
        found[f"nll_{samples}"] = [-mean(e.value) for e in each]
        if samples > 1:
            found[f"se_{samples}"] = [float(e.se.square().mean().sqrt()) / len(seen) ** 0.5 for e in each]
            found[f"ess_{samples}"] = [float(e.ess.median()) for e in each]
    first = posterior.chains(slice(0, 1))
    place.pictures(name, samples=generate(first, 100).mean, x=seen[:SHOWN], back=reconstruct(first, seen[:SHOWN]).mean)
    return found


class Mapped(nn.Module):
    """From the logit of a mean to the logit of the continuous Bernoulli that has this mean, by bisection."""

    def forward(self, f: Tensor) -> Tensor:
        wanted = f.sigmoid().clamp(1e-4, 1 - 1e-4)
        low, high = torch.full_like(f, -2e4), torch.full_like(f, 2e4)
        for _ in range(60):
            middle = (low + high) / 2
            below = TiltedUniform(middle).mean < wanted
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2


def grey(job: Job, place: Place) -> Line:
    """The same network trained by either; log p(x) of grey test images under the density, which is the continuous one."""
    train, test = digits(200, 20) if place.quick else digits(job["images"], job["test"])
    pixels = ContinuousBernoulli() if job["pixels"] == "continuous" else Bernoulli(grey=True)
    x = spread(train.x, "train").to(place.device)
    net = net_of(job["seed"], vae, 784, 500, 20)
    method = MAP(epochs=job["epochs"], lr=1e-3, batch_size=100, optimizer=ADAM)
    posterior = place.fit(Model(net, Flat(), Latent(pixels)), (x, x), method, job["seed"], f"grey-{job['pixels']}")
    theta = posterior.ends().theta
    found, x_test = {}, spread(test.x, "test").to(place.device)
    for name, mapped in {"as they are": False, "with the mean matched": True}.items():
        own = net_of(0, vae, 784, 500, 20)
        if mapped:
            own = VAE(own.encoder, nn.Sequential(*own.decoder, Mapped()), own.latent)
        proper = Model(own, Flat(), Latent(ContinuousBernoulli())).to(place.device)
        moved = Draws(proper, theta[:, None], theta.new_zeros(1, 1), {}, {})
        if not (mapped and job["pixels"] == "continuous"):
            evidence = log_likelihood(moved, x_test, 20 if place.quick else 100)
            found[f"log p, logits {name}"] = mean(evidence.value)
            found[f"se, logits {name}"] = float(evidence.value.std() / len(x_test) ** 0.5)
    place.pictures(
        f"grey-{job['pixels']}", samples=generate(posterior, 100).mean, noisy=generate(posterior, 25).sample(1)[0]
    )
    return found
