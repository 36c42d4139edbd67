"""Draws what reproduce/vae.py left as arrays: `python reproduce/vae_figures.py [--pictures FOLDER] [--out docs/figures]`.

Each figure is an SVG with alt text, and its numbers as CSV beside it. What has not been computed is left out, and said.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from evidence import RESULTS

from nescio.report import save
from nescio.report.figures import (
    codes_data,
    draw_codes,
    draw_kinds,
    draw_montage,
    kinds_data,
    montage_data,
    montage_values,
)
from nescio.report.style import Numbers

DIGIT, FACE = (28, 28), (28, 20)
TUTORIAL = "after H. B. Lee, Implementation Tutorial: Bayesian Deep Learning (2019)"
SMALLER = {"missing-60000": "missing-6000"}  # what is shown until the larger one has been run
Arrays = dict[str, np.ndarray]
Panel = tuple[str, Numbers]


def grid(pictures: np.ndarray, rows: int, shape: tuple[int, int] = DIGIT) -> Numbers:
    """Bytes (n, pixels) as rows of pictures in [0, 1]."""
    return montage_data(pictures.reshape(rows, -1, pictures.shape[-1]) / 255, shape)


def between(first: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Ten columns: each picture above what was made of it."""
    some = np.linspace(0, len(first) - 1, 10).round().astype(int)
    return np.stack([first[some], *(o[some] for o in others)])


def tutorial(a: Arrays) -> list[Panel]:
    return [(name, grid(a[key], 5)) for key, name in zip(
        ("train_x", "train_back", "test_x", "test_back"),
        ("training images", "reconstructed", "test images", "reconstructed "),
        strict=True,
    )]  # fmt: skip


def beside(vae: Arrays, plain: Arrays) -> list[Panel]:
    rows = between(vae["test_x"], plain["test_back"], vae["test_back"])
    return [("from above: test images, autoencoder, VAE", montage_data(rows / 255, DIGIT))]


def missing(a: Arrays) -> list[Panel]:
    half = a["x"].reshape(-1, 28, 28).copy()
    half[:, :, 14:] = 0
    rows = between(a["x"], half.reshape(len(half), -1), a["mean"], *a["draws"])
    return [("from above: the image, what was seen, mean, three draws", montage_data(rows / 255, DIGIT))]


def half(a: Arrays) -> list[Panel]:
    left = a["x"].reshape(-1, 28, 28).copy()
    left[:, :, 14:] = 0
    made = a["samples"].reshape(10, 5, -1).transpose(1, 0, 2)
    return [("from above: what is given, the image, five draws", montage_data(
        np.concatenate([np.stack([left.reshape(10, -1), a["x"]]), made]) / 255, DIGIT))]  # fmt: skip


# figure: (arrays that it needs, panels, title, line below, alt text, source)
Entry = tuple[Sequence[str], Callable[..., list[Panel]], str, str, str, str]
FIGURES: dict[str, Entry] = {
    "vae_reconstructions": (
        ["tutorial-20"], tutorial, "What 20 numbers keep of a digit", "1000 training images, 100 epochs",
        "Grids of training and test digits beside their reconstructions by a VAE, slightly blurred", TUTORIAL),
    "vae_manifold": (
        ["tutorial-2"], lambda a: [("z from −2 to 2 on both axes", grid(a["manifold"].reshape(-1, 784), 20))],
        "The plane that two latents span", "neighbours differ little, and the digits shade into one another",
        "A 20 by 20 grid of decoded digits over a square of the latent plane; classes form regions", TUTORIAL),
    "vae_samples": (
        ["tutorial-20"], lambda a: [("z drawn from the prior", grid(a["samples"], 10))], "Digits that nobody wrote",
        "means of the decoder; 1000 training images are few, and not every draw is a digit",
        "A hundred decoded draws of the prior, most of them like digits", TUTORIAL),
    "vae_beside_autoencoder": (
        ["tutorial-20", "autoencoder-20"], beside, "The truth, an autoencoder and a VAE",
        "the autoencoder's training images are sharper than its test images; the VAE blurs what it cannot know",
        "Ten test digits above their reconstructions by an autoencoder and by a VAE", "Kingma & Welling (2014)"),
    "vae_binarised": (
        ["binarised-200-tanh-50"], lambda a: [("IWAE, 50 samples", grid(a["samples"], 10))], "Binarised digits, drawn",
        "means of the decoder at draws from the prior", "A hundred sampled digits, mostly sharp", "Burda et al. (2016)"),
    "vae_grey": (
        ["grey-plain", "grey-continuous"],
        lambda a, b: [("trained by Bernoulli", grid(a["samples"], 10)), ("by continuous Bernoulli", grid(b["samples"], 10))],
        "Grey pixels: the wrong likelihood and the right one", "means of the decoder at the same draws from the prior",
        "Two grids of sampled digits; those of the continuous Bernoulli are more often broken", "Loaiza-Ganem & Cunningham (2019)"),
    "vae_classes": (
        ["cvae-label"], lambda a: [("a row for each class that was asked for", grid(a["samples"], 10))], "A label that is hardly heard",
        "grey pixels, one law of z for all classes: the code says which digit it is", "Ten rows of sampled digits, whose classes are mixed",
        "Sohn et al. (2015)"),
    "vae_orders": (
        ["cvae-label-binarised"], lambda a: [("a row for each class", grid(a["samples"], 10))], "Digits to order",
        "zeros and ones, a law of z for each class; the style is drawn", "Ten rows of sampled digits, one for each class",
        "Sohn et al. (2015)"),
    "vae_halves": (
        ["cvae-left-half"], half, "The right half, given the left", "five draws differ where the left half leaves it open",
        "Columns of digits: the left half, the true image, and five completions", "Sohn et al. (2015)"),
    "vae_styles": (
        ["m2"], lambda a: [("a row is a style, a column a class", grid(a["samples"], 10))], "Style and label apart",
        "M2 with 100 labels of 60,000: the same z in a row", "Ten styles of the ten digits, slant and weight constant in a row",
        "Kingma et al. (2014)"),
    "vae_faces": (
        ["faces-2"], lambda a: [("z from −2 to 2 on both axes", grid(a["manifold"].reshape(-1, 560), 15, FACE))],
        "A plane of faces", "pose and expression change smoothly over it; nobody named them",
        "A 15 by 15 grid of decoded faces, turning and smiling gradually", "Kingma & Welling (2014), Frey's face"),
    "vae_walks": (
        ["faces-10"], lambda a: [("one latent a row, from −3 to 3", grid(a["walks"].reshape(-1, 560), len(a["walks"]), FACE))],
        "One latent at a time", "six of ten latents, the others as in one held-out picture; where nothing changes, a latent says nothing",
        "Rows of faces in which one latent changes pose or expression", "Frey's face"),
    "vae_missing": (
        ["missing-60000"], missing, "What the right half may have been", "a chain over z given the left half; draws have pixels' noise",
        "Ten digits, their left halves, and completions of them", "Rezende et al. (2014)"),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> list[str]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, default=RESULTS / "vae_pictures")
    parser.add_argument("--out", type=Path, default=RESULTS.parent.parent / "docs" / "figures")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    done = []
    for name, (needed, panels, title, text, alt, source) in FIGURES.items():
        paths = [options.pictures / f"{key}.npz" for key in needed]
        paths = [path if path.exists() else options.pictures / f"{SMALLER.get(path.stem)}.npz" for path in paths]
        if not all(path.exists() for path in paths):
            print(f"{name}: not computed yet")
            continue
        made = panels(*(dict(np.load(path)) for path in paths))
        titles, numbers = [p[0] for p in made], [p[1] for p in made]
        figure = draw_montage(numbers, titles, title, text, ink="face" not in source)
        save(
            figure, options.out / f"{name}.svg", alt=alt, values=montage_values(numbers, titles), source=source, seed=0
        )
        done.append(name)
    codes = options.pictures / "tutorial-20.npz"
    if codes.exists():
        found = dict(np.load(codes))
        shown = codes_data(found["codes"], found["labels"])
        alt = "Codes of 1000 test digits in two dimensions; t-SNE separates most classes, principal components few"
        save(draw_codes(shown), options.out / "vae_codes.svg", alt=alt, values=shown, source=TUTORIAL, seed=0)
        done.append("vae_codes")
    kinds = kinds_data()
    alt = (
        "A tree: models with a density, exact or approximate, and without; flows, variational and others at its leaves"
    )
    save(
        draw_kinds(kinds), options.out / "generative_kinds.svg", alt=alt, values=kinds, source="after Goodfellow (2016)"
    )
    return [*done, "generative_kinds"]


if __name__ == "__main__":
    print("\n".join(main()))
