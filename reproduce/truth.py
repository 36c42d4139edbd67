"""Exact posteriors from outside: every mean and standard deviation of the posteriordb linear models, by each exact sampler.

Independent chains, one draw each, so that the tolerance is that of independent draws: with n chains |z| <= 6.11 for a mean (a false alarm
once in 1e9 comparisons) and 3% for a standard deviation (4.5% for the few-rows case: heavier tails). Chains start at least squares,
adapt together in the warm-up, and each gives its last state. The references (mean, sd, to rounding) were made by quadrature in 50 digits.

    python reproduce/truth.py --truth FOLDER [--chains 40000] [--device cuda] [--quick] [--only kilpisjarvi] [--methods HMC NUTS]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evidence import RESULTS, origin, write
from torch import nn

from nescio import Model, fit
from nescio.infer import HMC, MALA, MAP, NUTS, AdjustedMCLMC
from nescio.infer.sampler import Sampler
from nescio.laws import Flat, HalfCauchy, HalfFlat, HalfNormal, HalfStudentT, Law, Normal
from nescio.likelihoods import Gaussian

METHODS: dict[str, Sampler] = {
    "HMC": HMC(draws=1, warmup=600, leapfrog=8, dense=True),
    "NUTS": NUTS(draws=1, warmup=300, dense=True),
    "MALA": MALA(draws=1, warmup=2000, dense=True),
    "AdjustedMCLMC": AdjustedMCLMC(draws=1, warmup=600, dense=True),
}
Z = 6.11


def noise_law(prior: dict[str, Any]) -> Law:
    laws = {
        "flat": lambda q: HalfFlat(),
        "half_cauchy": lambda q: HalfCauchy(q["scale"]),
        "half_normal": lambda q: HalfNormal(q["scale"]),
        "half_student_t": lambda q: HalfStudentT(q["df"], q["scale"]),
    }
    return laws[prior["family"]](prior)


def weight_law(priors: list[dict[str, Any]]) -> Law | None:
    if all(q["family"] == "flat" for q in priors):
        return Flat()
    if all(q["family"] == "normal" for q in priors):
        return Normal(torch.tensor([[q["loc"] for q in priors]]), torch.tensor([[q["scale"] for q in priors]]))
    return None  # mixed families: one linear layer has one law


def problem(stem: Path) -> tuple[Model, tuple[torch.Tensor, torch.Tensor], dict[str, Any]] | None:
    """The regression of a reference as a network: one linear layer on its columns."""
    d, z = json.loads(stem.with_suffix(".json").read_text()), np.load(stem.with_suffix(".npz"), allow_pickle=False)
    x, y = torch.tensor(z["X"], dtype=torch.float64), torch.tensor(z["y"], dtype=torch.float64)[:, None]
    priors = d["model"]["weight_prior"]
    law = weight_law([priors] * x.shape[1] if isinstance(priors, dict) else priors)
    if law is None:
        return None
    net = nn.Linear(x.shape[1], 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.linalg.lstsq(x, y).solution.mT)  # chains start at least squares
    return Model(net, law, Gaussian(noise_law(d["model"]["noise_prior"]))), (x, y), d["truth"]


def score(stem: Path, name: str, chains: int, device: str) -> dict[str, Any] | None:
    loaded = problem(stem)
    if loaded is None:
        return None
    model, (x, y), truth = loaded
    here = MAP(epochs=1, lr=1e-30, batch_size=len(x), optimizer=torch.optim.SGD)  # stays at the network's own weights
    began = time.perf_counter()
    posterior = fit(model, (x, y), here >> chains * METHODS[name], seed=0, device=device)
    drawn = posterior.sample(chains)
    values = torch.cat([drawn["weight"].flatten(1), drawn["likelihood.noise"].reshape(chains, 1)], 1).cpu().numpy()
    mean, sd = np.array(truth["mean"]), np.array(truth["sd"])
    z = (values.mean(0) - mean) / sd * chains**0.5
    ratio = values.std(0, ddof=1) / sd
    tolerance = 0.045 if "fewrows" in stem.name else 0.03
    return {
        "row": f"{stem.name}, {name}",
        "metric": "largest |z| of a mean",
        "published": None,
        "mark": "read",
        "ours": float(np.abs(z).max()),
        "sd_error": float(np.abs(ratio - 1).max()),
        "n": chains,
        "seconds": round(time.perf_counter() - began, 1),
        "acceptance": posterior.info.get("acceptance"),
        "right": bool(np.abs(z).max() <= Z and np.abs(ratio - 1).max() <= tolerance),
        "checklist": ["002-19", "002-20", "002-22"],
    }


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--chains", type=int, default=40_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--quick", action="store_true", help="one small posterior, few chains")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.only, options.chains = "mesquite-logmesquite_logvolume", 400
    rows = []
    for stem in sorted(
        p.with_suffix("") for p in options.truth.glob("*/*.json") if p.parent.name in ("linear", "informative")
    ):
        if options.only not in stem.name:
            continue
        for name in options.methods:
            row = score(stem, name, options.chains, options.device)
            if row is not None:
                rows.append(row)
                print({k: row[k] for k in ("row", "ours", "sd_error", "seconds", "acceptance", "right")}, flush=True)
    write("truth", "python reproduce/truth.py --truth FOLDER", rows, [0], options.quick, options.out, origin())
    return rows


if __name__ == "__main__":
    main()
