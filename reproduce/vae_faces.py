"""Frey's face: a plane of expressions and poses; and a decoder whose weights are distributions, shown what it has never seen."""

from __future__ import annotations

import torch
from torch import Tensor
from vae_place import ADAM, SHOWN, Job, Line, Place, digits, mean, net_of, spread

from nescio import Model
from nescio.data.images import images
from nescio.generative import encode, log_likelihood, manifold, reconstruct, traverse
from nescio.infer import MAP, VI
from nescio.infer.families import MeanField
from nescio.laws import Flat, Normal
from nescio.likelihoods import ContinuousBernoulli, Latent
from nescio.nets import vae
from nescio.noise import Noise


def faces(job: Job, place: Place) -> Line:
    """Frey's face, 28 x 20: the plane of two latents, and walks along each of more."""
    x = torch.from_numpy(images("frey_faces")["x"]).flatten(1).float() / 255
    x = x[:100] if place.quick else x
    order = Noise(0, ("faces",)).permutations(1, len(x))[0]
    held, train = x[order[: len(x) // 10]].to(place.device), x[order[len(x) // 10 :]].to(place.device)
    net = net_of(0, vae, 560, 200, job["latent"])
    method = MAP(epochs=job["epochs"], lr=1e-3, batch_size=50, optimizer=ADAM)
    model = Model(net, Flat(), Latent(ContinuousBernoulli()))
    posterior = place.fit(model, (train, train), method, 0, f"faces-{job['latent']}")
    q = encode(posterior, train)
    nats = 0.5 * (q.loc.square() + q.scale.square() - 2 * q.scale.log() - 1).mean(0)  # how much each latent says
    arrays = {"x": held[:SHOWN], "back": reconstruct(posterior, held[:SHOWN]).mean}
    if job["latent"] == 2:
        arrays["manifold"] = manifold(posterior, 15, 2.0)
    else:
        best = nats.argsort(descending=True)[:6].tolist()
        arrays["walks"] = traverse(posterior, held[:1], best, torch.linspace(-3, 3, 9).tolist())
    place.pictures(f"faces-{job['latent']}", **arrays)
    evidence = log_likelihood(posterior, held, 10 if place.quick else 500)
    return {"held-out log p": mean(evidence.value), "nats a latent": [round(float(v), 2) for v in nats]}


def bayesian_decoder(job: Job, place: Place) -> Line:
    """MAP >> VI on the decoder: what its draws agree on, among digits and among other images."""
    train, test = digits(200, 30) if place.quick else digits(job["images"], 500)
    train, test = train._replace(x=spread(train.x, "train")), test._replace(x=spread(test.x, "test"))
    x = train.x.to(place.device)
    net = net_of(job["seed"], vae, 784, 500, 20)
    model = Model(net, Normal(0, 1), Latent(ContinuousBernoulli()))
    epochs = job["epochs"]
    start = MAP(epochs=epochs, lr=1e-3, batch_size=100, optimizer=ADAM)
    then = VI(MeanField(sd=0.01), epochs=epochs, lr=1e-3, batch_size=100).on("decoder.*")
    posterior = place.fit(model, (x, x), start >> then, job["seed"], f"decoder-{job['seed']}")
    other = {"fashion": images("fashion_mnist_test_5k")["x"], "letters": images("notmnist_5k")["x"]}
    sets = {
        "digits": test.x,
        **{k: spread(torch.from_numpy(v[: len(test.x)]).flatten(1).float() / 255, k) for k, v in other.items()},
    }
    draws, samples = (3, 5) if place.quick else (20, 50)
    found: Line = {"elbo": posterior.info["elbo"]}
    scores = {}
    for name, given in sets.items():
        evidence = log_likelihood(posterior, given.to(place.device), samples, draws=draws)
        doubt = reconstruct(posterior, given.to(place.device), draws=draws).epistemic.sum(1)
        scores[name] = {"log p": -evidence.value, "agreement": -evidence.agreement(), "epistemic": doubt}
        found[f"{name}: log p"], found[f"{name}: draws that agree"] = mean(evidence.value), mean(evidence.agreement())
        found[f"{name}: epistemic variance"] = mean(doubt)
    for name in other:
        for score in scores[name]:
            found[f"AUROC {name} by {score}"] = round(auroc(scores["digits"][score], scores[name][score]), 4)
    return found


def auroc(inside: Tensor, outside: Tensor) -> float:
    """How often an outlier has the higher score; ties count half."""
    a, b = inside.double().cpu(), outside.double().cpu()
    return float(((b[:, None] > a).double() + 0.5 * (b[:, None] == a).double()).mean())
