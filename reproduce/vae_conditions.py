"""Images given a label or half of themselves, and labels given few: CVAE (Sohn et al., 2015), M2 (Kingma et al., 2014)."""

from __future__ import annotations

from typing import Any

import torch
from digits import Digits
from torch import Tensor
from torch.nn import functional as F
from vae_place import ADAM, Job, Line, Place, digits, mean, net_of, spread

from nescio import Model
from nescio.generative import classify, decode, generate, log_likelihood
from nescio.infer import MAP
from nescio.laws import Flat
from nescio.likelihoods import Bernoulli, ContinuousBernoulli, Latent, PartlyLabelled
from nescio.nets import cvae, m2, vae
from nescio.noise import Noise


def conditional(job: Job, place: Place) -> Line:
    """Given the label, or the left half of the image; log p(x | given) beside log p(x) without it."""
    train, test = digits(200, 20) if place.quick else digits(job["images"], job["test"])
    if job.get("binarised"):
        return to_order(job, place, train, test)
    train, test = train._replace(x=spread(train.x, "train")), test._replace(x=spread(test.x, "test"))

    def given(d: Digits) -> Tensor:
        if job["given"] == "label":
            return F.one_hot(d.y, 10).to(d.x.dtype)
        return d.x.unflatten(1, (28, 28))[:, :, :14].flatten(1)

    sizes = {"label": 10, "left half": 392, "nothing": 0}
    net = net_of(job["seed"], vae, 784, 500, 20)
    x, y = train.x.to(place.device), test.x.to(place.device)
    inputs: Any = x
    if job["given"] != "nothing":
        net = net_of(job["seed"], cvae, 784, 500, 20, sizes[job["given"]], learned_prior=job["given"] != "label")
        inputs = (x, given(train).to(place.device))
    model = Model(net, Flat(), Latent(ContinuousBernoulli()))
    method = MAP(epochs=job["epochs"], lr=1e-3, batch_size=100, optimizer=ADAM)
    name = f"cvae-{job['given'].replace(' ', '-')}"
    posterior = place.fit(model, (inputs, x), method, job["seed"], name)
    asked = y if job["given"] == "nothing" else (y, given(test).to(place.device))
    evidence = log_likelihood(posterior, asked, 20 if place.quick else 100)
    if job["given"] == "label":
        rows = torch.eye(10, device=place.device).repeat_interleave(10, 0)
        place.pictures(name, samples=generate(posterior, 100, given=rows).mean)
    elif job["given"] == "left half":
        rows = given(test).to(place.device)[:10].repeat_interleave(5, 0)
        place.pictures(name, x=y[:10], samples=generate(posterior, 50, given=rows).mean)
    return {"log p": mean(evidence.value), "se": float(evidence.value.std() / len(y) ** 0.5)}


def to_order(job: Job, place: Place, train: Digits, test: Digits) -> Line:
    """Zeros and ones given the label, p(z | label) learned; are pictures of the class that was asked for?"""
    one_hot = torch.eye(10, device=place.device)
    x, thrown = train.x.to(place.device), Noise(1).at("thrown").uniform(*test.x.shape)
    seen = (thrown < test.x).to(x)
    net = net_of(job["seed"], cvae, 784, 500, 20, 10, learned_prior=True, binarise=True)
    method = MAP(epochs=job["epochs"], lr=1e-3, batch_size=100, optimizer=ADAM)
    model = Model(net, Flat(), Latent(Bernoulli()))
    labels = train.y.to(place.device)
    posterior = place.fit(model, ((x, one_hot[labels]), x), method, job["seed"], "cvae-label-binarised")
    evidence = log_likelihood(posterior, (seen, one_hot[test.y.to(place.device)]), 20 if place.quick else 100)
    made = generate(posterior, 100, given=one_hot.repeat_interleave(10, 0)).mean
    place.pictures("cvae-label-binarised", samples=made)
    near = torch.cdist(made.cpu(), test.x).topk(5, largest=False).indices  # (pictures, 5)
    heard = test.y[near].mode(1).values == torch.arange(10).repeat_interleave(10)
    return {"log p": mean(evidence.value), "pictures of the class asked for, by their neighbours": mean(heard)}


def semi_supervised(job: Job, place: Place) -> Line:
    """M2: `labels` of them, evenly over classes, chosen by the seed; each repeated, so that every batch has some."""
    train, test = digits(400, 50) if place.quick else digits(60_000, 10_000)
    noise, n, labels = Noise(job["seed"], ("labels",)), len(train.x), job["labels"]
    order = noise.permutations(1, n)[0]
    chosen = torch.cat([order[train.y[order] == c][: labels // 10] for c in range(10)])
    x = (noise.at("thrown").uniform(n, 784) < train.x).to(train.x.dtype)
    repeats = 2 if place.quick else 50
    rows = torch.cat([torch.arange(n), chosen.repeat(repeats - 1)])
    y = torch.full((n,), -1)
    y[chosen] = train.y[chosen]
    weight = job["alpha"] * n / labels / repeats
    net = net_of(job["seed"], m2, 784, 500, 50)
    model = Model(net, Flat(), PartlyLabelled(Bernoulli(), weight))
    data = x[rows].to(place.device), {"image": x[rows].to(place.device), "label": y[rows].to(place.device)}
    method = MAP(epochs=job["epochs"], lr=1e-3, batch_size=min(500, len(rows)), optimizer=ADAM)
    posterior = place.fit(model, data, method, job["seed"], f"m2-{job['alpha']}-{job['seed']}")
    thrown = (noise.at("test").uniform(*test.x.shape) < test.x).to(test.x.dtype).to(place.device)
    wrong = classify(posterior, thrown).argmax(1).cpu() != test.y
    if job["seed"] == 0 and job["alpha"] == 1.0:
        rows = torch.eye(10, device=place.device).repeat(10, 1)
        style = Noise(0, ("style",), torch.device(place.device)).normal(10, 50).repeat_interleave(10, 0)
        place.pictures("m2", samples=decode(posterior, style, given=rows).mean)
    return {"error": round(100 * float(wrong.double().mean()), 3), "weight": weight}
