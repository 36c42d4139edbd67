"""Generative models beside published numbers: variational autoencoders, conditional, semi-supervised, with the right pixels, Bayesian.

    python reproduce/vae.py [--only tutorial autoencoder binarised grey conditional m2 faces decoder missing] [--device cuda]
                            [--budget SECONDS] [--epochs N] [--out FOLDER] [--quick]

tutorial      H. B. Lee's (KAIST, 2019): 784-500-500-z, the first 100 digits of each class, 100 epochs, Bernoulli on grey pixels; its log of
              the bound over the first six epochs, reconstructions, codes, samples, and for z = 2 the plane. A plain autoencoder beside it.
binarised     60,000 digits, pixels thrown anew at every step; -log p of 10,000 test images by 1, 100 and 5000 importance samples, VAE and
              IWAE with k = 50, one stochastic layer of 50, two hidden layers of 200 tanh units (and of 500 ReLU units).
grey          Bernoulli against continuous Bernoulli on grey pixels, (byte + u) / 256: log density under the latter, samples.
conditional   given the label, given the left half; zeros and ones given the label, with a law of z for each class.
m2            100 labels of 60,000: test error over seeds.
faces         Frey's face. decoder: MAP >> VI(MeanField()).on("decoder.*") and images of other things. missing: right halves of digits.

Every finished job is a line of vae.rows.jsonl; a job that was interrupted goes on from its last checkpoint (vae_runs/). Pictures are arrays
in vae_pictures/, which `python reproduce/vae_figures.py` draws. What is compared with what: reproduce/vae_table.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from evidence import write
from resumable import Job, Line, finish, options
from vae_conditions import conditional, semi_supervised
from vae_digits import binarised, grey, tutorial
from vae_faces import bayesian_decoder, faces
from vae_missing import missing
from vae_place import Late, Place
from vae_table import show, table

ALPHAS = (0.1, 1.0)  # the paper's, and more weight on the few labels: how much a label may say against a whole image
WORK = {
    "tutorial": tutorial,
    "autoencoder": tutorial,
    "binarised": binarised,
    "grey": grey,
    "conditional": conditional,
    "m2": semi_supervised,
    "faces": faces,
    "decoder": bayesian_decoder,
    "missing": missing,
}


def jobs(only: Sequence[str], quick: bool, epochs: int | None) -> list[Job]:
    """All settings of the experiments that are asked for."""

    def of(what: str, many: int, **settings: Any) -> Job:
        return {"what": what, "epochs": 2 if quick else epochs or many, **settings}

    seeds, size = (1, {"images": 200, "test": 20}) if quick else (5, {"images": 60_000, "test": 10_000})
    found = [of("tutorial", 100, latent=20, seed=s) for s in range(seeds)]
    found += [of("tutorial", 100, latent=2, seed=0)]
    found += [of("autoencoder", 100, latent=z, seed=0) for z in (20, 2)]
    nets = (("200 tanh", 1, 1000, 4), ("200 tanh", 50, 400, 2), ("500 relu", 1, 500, 2))
    found += [of("binarised", n, net=net, k=3 if quick and k > 1 else k, members=m) for net, k, n, m in nets]
    found += [of("grey", 50, pixels=pixels, seed=0, **size) for pixels in ("continuous", "plain")]
    found += [of("conditional", 50, given=given, seed=0, **size) for given in ("nothing", "label", "left half")]
    found += [of("conditional", 50, given="label", binarised=True, seed=0, **size)]
    found += [of("m2", 300, labels=100, alpha=a, seed=s) for a in ALPHAS for s in range(seeds)]
    found += [of("faces", 400, latent=z) for z in (2, 10)]
    found += [of("missing", 15, images=6000), of("missing", 50, images=60_000, test=200)]
    found += [of("decoder", 30, images=20_000, seed=0)]
    return [job for job in found if job["what"] in only]


def work(job: Job, until: float, device: str, out: Path, quick: bool) -> Line | None:
    try:
        return WORK[job["what"]](job, Place(device, out, until, quick))
    except Late:
        return None


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--only", nargs="*", choices=sorted(WORK), default=list(WORK))
    parser.add_argument("--epochs", type=int, help="other than planned, for all jobs")
    chosen = parser.parse_args(arguments)
    todo = jobs(chosen.only, chosen.quick, chosen.epochs)
    name = f"vae{'.quick' if chosen.quick else ''}.rows.jsonl"
    run = partial(work, device=chosen.device, out=chosen.out, quick=chosen.quick)
    path = chosen.rows or chosen.out / name
    lines = finish(todo, run, path, chosen.device, chosen.workers, chosen.budget)
    if not lines:
        return []
    every = finish(jobs(list(WORK), chosen.quick, chosen.epochs), run, path, chosen.device, 1, 0.0)  # what others left
    rows = table(every)
    made = every[-1]["made"]
    write(
        "vae",
        "python reproduce/vae.py",
        rows,
        sorted({x["job"].get("seed", 0) for x in every}),
        chosen.quick,
        chosen.out,
        made,
    )
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
