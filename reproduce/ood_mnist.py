"""A LeNet that has seen digits is shown something else: how sure is it, and can digits be told from the rest by its confidence?

    python reproduce/ood_mnist.py --device cuda [--workers 4] [--seeds 5] [--epochs 40] [--kinds map bbb] [--budget SECONDS]

After Daxberger et al. (2021, "Laplace Redux", Table 1): LeNet on MNIST, Adam 1e-3 with a cosine, batch 128, weight decay 5e-4; confidence
is the mean of the largest probability on images outside (lower is better), AUROC that of the same number. Methods: MAP; an ensemble;
Laplace of the last layer and of all weights, Kronecker-factored, linearised with the probit link, its prior scale by the evidence;
SWAG from the same mode; MC dropout; Bayes by Backprop. A job trains once and serves all methods that start from its mode.

Not the paper's: fewer epochs; LeNet-5 of Caffe, with ReLUs; the sets outside are Fashion-MNIST, notMNIST and Omniglot, where the paper has
Fashion-, K- and E-MNIST; Bayes by Backprop has its full divergence, theirs a tenth of it, no flipout by layers, and a prior
N(0, 0.1). So their means stand beside ours without a verdict; read: the reproduction's own (third party), from memory the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from evidence import write
from ood_data import OUTSIDE, digits, outside
from resumable import Job, Line, finish, options
from torch import Tensor, nn

from nescio import Model, Posterior, Predictive, evidence, fit
from nescio.evaluation import accuracy, auroc, nll
from nescio.infer import MAP, SWAG, VI, Laplace
from nescio.infer.curvature import kfac
from nescio.infer.families import MeanField, NetDropout, prior_scale
from nescio.laws import Learned, Normal
from nescio.likelihoods import Categorical
from nescio.links import probit
from nescio.noise import Noise

KINDS = {
    "map": ("MAP", "Laplace, last layer", "Laplace, KFAC", "SWAG"),
    "ensemble": ("ensemble",),
    "dropout": ("MC dropout",),
    "bbb": ("Bayes by Backprop",),
}
PUBLISHED = {  # mean over Fashion-, K- and E-MNIST: confidence, AUROC, how it was read
    "MAP": (75.0, 96.5, "third party"),
    "ensemble": (65.7, 97.5, "third party"),
    "Bayes by Backprop": (73.3, 95.9, "third party"),
    "SWAG": (76.8, 96.3, "third party"),
    "Laplace, last layer": (67.5, 96.2, "memory"),
}
DECAY, DRAWS, HEAD, MEMBERS, WIDTHS = 5e-4, 100, "10.*", 5, (20, 50, 500)
IDS = ("001-3", "002-27", "002-28")
Sets = dict[str, Tensor]


def lenet(seed: int, drop: float = 0.0, widths: tuple[int, int, int] = WIDTHS) -> nn.Sequential:
    """Two convolutions, one hidden layer, ReLUs; dropout before each of the last two layers."""
    first, second, units = widths
    with Noise(seed).at("lenet").scope():
        return nn.Sequential(
            *(
                nn.Conv2d(1, first, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(first, second, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ),
            *(
                nn.Flatten(),
                nn.Sequential(nn.Dropout(drop), nn.Linear(16 * second, units)),
                nn.ReLU(),
                nn.Dropout(drop),
            ),
            nn.Linear(units, 10),
        )


def scored(predict: Any, inside: tuple[Tensor, Tensor], out: Sets) -> Line:
    """Of digits accuracy, NLL and confidence; of each set outside confidence and AUROCs by confidence and by mutual information."""
    predicted: Predictive = predict(inside[0])
    sure, doubt = predicted.mean.amax(1), predicted.epistemic
    line: Line = {"accuracy": 100 * accuracy(predicted, inside[1]), "nll": nll(predicted, inside[1])}
    line["confidence, digits"] = 100 * float(sure.mean())
    for name, x in out.items():
        other: Predictive = predict(x)
        line[f"confidence, {name}"] = 100 * float(other.mean.amax(1).mean())
        line[f"AUROC, {name}"] = 100 * auroc(-sure.cpu(), -other.mean.amax(1).cpu()).value
        if float(doubt.max()) > 1e-4:  # one network has none
            line[f"AUROC of doubt, {name}"] = 100 * auroc(doubt.cpu(), other.epistemic.cpu()).value
    return line


def by_evidence(net: nn.Module, data: tuple[Tensor, Tensor], pattern: str) -> tuple[Posterior, float]:
    """Laplace at this network's weights with the prior scale of the highest evidence among 21, the mode being what it is."""
    scales = torch.logspace(-2, 1, 21, dtype=torch.float64)
    laws = {HEAD: Normal(0.0, Learned(1.0)), "*": Normal(0.0, 1.0)} if pattern == HEAD else Normal(0.0, Learned(1.0))
    name = f"prior.{pattern}.scale"
    first = fit(Model(net, laws, Categorical()), data, Laplace(kfac).on(pattern))
    found = [float(evidence(first, {name: scale})) for scale in scales]
    best = float(scales[int(np.argmax(found))])
    chosen = {HEAD: Normal(0.0, best), "*": Normal(0.0, 1.0)} if pattern == HEAD else Normal(0.0, best)
    return fit(Model(net, chosen, Categorical()), data, Laplace(kfac).on(pattern)), best


def methods(job: Line, data: tuple[Tensor, Tensor]) -> dict[str, tuple[Any, Line]]:
    """Name to what predicts, and what else is told."""
    seed, epochs, batch = job["seed"], job["epochs"], min(128, len(data[1]) // 2)
    scale = prior_scale(DECAY, len(data[1]))
    training = partial(MAP, epochs=epochs, lr=1e-3, batch_size=batch)
    device, kind = data[0].device, job["kind"]
    net = lenet(seed, 0.5 if kind == "dropout" else 0.0, (2, 3, 8) if len(data[1]) < 1000 else WIDTHS).to(device)
    model = Model(net, Normal(0.0, scale), Categorical())
    if kind == "ensemble":
        return {"ensemble": (fit(model, data, MEMBERS * training(), seed=seed).predict, {"members": MEMBERS})}
    if kind == "dropout":
        method = VI(NetDropout(), epochs=epochs, lr=1e-3, batch_size=batch)
        return {"MC dropout": (partial(fit(model, data, method, seed=seed).predict, draws=DRAWS), {"drop": 0.5})}
    if kind == "bbb":
        method = VI(MeanField(0.02), epochs=epochs, lr=1e-3, batch_size=batch)
        posterior = fit(Model(net, Normal(0.0, 0.1), Categorical()), data, method, seed=seed)
        return {"Bayes by Backprop": (partial(posterior.predict, draws=DRAWS), {"elbo": posterior.info.get("elbo")})}
    mode = fit(model, data, training(), seed=seed)
    net.load_state_dict({**net.state_dict(), **{n: x for n, x in mode.point().items() if n in net.state_dict()}})
    at_mode = Model(net, Normal(0.0, scale), Categorical())
    swag = fit(at_mode, data, SWAG(20, epochs=max(2, epochs // 2), lr=1e-2, batch_size=batch), seed=seed)
    found: dict[str, tuple[Any, Line]] = {"MAP": (mode.predict, {}), "SWAG": (partial(swag.predict, draws=30), {})}
    for name, pattern in (("Laplace, last layer", HEAD), ("Laplace, KFAC", "*")):
        posterior, best = by_evidence(net, data, pattern)
        found[name] = (posterior.linearize(probit).predict, {"prior scale": best})  # type: ignore[attr-defined]
    return found


def work(job: Job, until: float, device: str) -> Line:
    x, y, x_test, y_test = digits()
    out = {name: outside(name) for name in OUTSIDE}
    if job["quick"]:
        x, y, x_test, y_test = x[:64], y[:64], x_test[:20], y_test[:20]
        out = {name: images[:10] for name, images in out.items()}
    data, inside = (x.to(device), y.to(device)), (x_test.to(device), y_test.to(device))
    out = {name: images.to(device) for name, images in out.items()}
    return {"scores": {n: {**scored(p, inside, out), **told} for n, (p, told) in methods(job, data).items()}}


def rows_of(found: Sequence[Line]) -> list[dict[str, Any]]:
    """For each method and score the mean over seeds with its standard error; "outside" is the mean over the three sets."""
    rows: list[dict[str, Any]] = []
    for name in [name for names in KINDS.values() for name in names]:
        lines = [dict(line["scores"][name]) for line in found if name in line["scores"]]
        for line in lines:
            for what in ("confidence", "AUROC"):
                line[f"{what}, outside"] = float(np.mean([line[f"{what}, {s}"] for s in OUTSIDE]))
        told = dict(zip(("confidence, outside", "AUROC, outside"), PUBLISHED.get(name, ())[:2], strict=False))
        for key in [k for k, v in lines[0].items() if isinstance(v, float)] if lines else []:
            values = np.array([line[key] for line in lines if key in line])
            row = {
                "row": name,
                "metric": key,
                "published": told.get(key),
                "mark": PUBLISHED[name][2] if key in told else "own",
            }
            se = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
            rows.append({**row, "ours": float(values.mean()), "se": se, "n": len(values), "checklist": list(IDS)})
    return rows


def show(rows: Sequence[dict[str, Any]]) -> str:
    head = f"{'':<22}{'seeds':>6}{'accuracy':>10}{'NLL':>9}" + "".join(
        f"{s:>16}" for s in (*OUTSIDE, "mean", "published")
    )
    lines = [head + "    confidence / AUROC"]
    for name in dict.fromkeys(row["row"] for row in rows):
        own = {row["metric"]: row for row in rows if row["row"] == name}
        pairs = [
            f"{own[f'confidence, {s}']['ours']:.1f} / {own[f'AUROC, {s}']['ours']:.1f}" for s in (*OUTSIDE, "outside")
        ]
        published = [own[f"{what}, outside"]["published"] for what in ("confidence", "AUROC")]
        pairs.append("" if None in published else f"{published[0]} / {published[1]}")
        first = f"{name:<22}{own['accuracy']['n']:>6}{own['accuracy']['ours']:>10.2f}{own['nll']['ours']:>9.4f}"
        lines.append(first + "".join(f"{pair:>16}" for pair in pairs))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.seeds, chosen.epochs = 1, 1
    common = {"epochs": chosen.epochs, "quick": chosen.quick}
    jobs: list[Job] = [{"kind": k, "seed": s, **common} for s in range(chosen.seeds) for k in chosen.kinds]
    path = chosen.rows or chosen.out / f"ood_mnist{'.quick' if chosen.quick else ''}.rows.jsonl"
    run = partial(work, device=chosen.device)
    found = finish(jobs, run, path, chosen.device, chosen.workers, chosen.budget)
    if not found:
        return []
    rows = rows_of(found)
    command = "python reproduce/ood_mnist.py" + (" --quick" if chosen.quick else f" --epochs {chosen.epochs}")
    seeds = sorted({line["job"]["seed"] for line in found})
    write("ood_mnist", command, rows, seeds, chosen.quick, chosen.out, found[0]["made"])
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
