"""Where data lie in a latent space: two coordinates of their codes, by principal components and by t-SNE, coloured by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nescio.errors import InputError, UnsupportedError
from nescio.report.figures.arrays import array
from nescio.report.style import Numbers, canvas, headed, styled
from nescio.report.theme import LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# ten classes that can be told apart: six hues of Okabe & Ito, and four between them
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d00", "#aa4499", "#444444", "#88ccaa")


def codes_data(codes: Any, labels: Any, seed: int = 0) -> Numbers:
    """PCA (points, 2) with the part of the variance that it shows, and t-SNE (points, 2), of codes (points, latents).

    `agree`: how many of the ten nearest neighbours are of the same class, on average, in the codes themselves and in each picture.
    """
    x, y = array(codes), np.asarray(array(labels), dtype=np.int64)
    if x.ndim != 2 or y.shape != x.shape[:1] or len(x) < 12 or x.shape[1] < 2:
        got = f"{x.shape} and {y.shape}"
        raise InputError("codes must be (points, latents) with a label each, 12 or more", got, "use encode(...).mean")
    centred = x - x.mean(0)
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    pca = centred @ axes[:2].T
    tsne = neighbours(x, seed)
    agree = [agreement(place, y) for place in (x, pca, tsne)]
    shown = values[:2] ** 2 / (values**2).sum()
    return {"pca": pca.T, "tsne": tsne.T, "label": y, "shown": shown, "agree": np.array(agree)}


def neighbours(x: np.ndarray, seed: int) -> np.ndarray:
    """t-SNE (van der Maaten & Hinton, 2008)."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        must, got = "t-SNE needs scikit-learn", "an installation without it"
        raise UnsupportedError(must, got, "pip install 'nescio[report]'") from None
    perplexity = min(30.0, (len(x) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(x.astype(np.float32))


def agreement(x: np.ndarray, y: np.ndarray, near: int = 10) -> float:
    squares = (x**2).sum(1)
    distance = squares[:, None] + squares - 2 * x @ x.T
    np.fill_diagonal(distance, np.inf)
    closest = np.argpartition(distance, near, axis=1)[:, :near]
    return float((y[closest] == y[:, None]).mean())


def draw_codes(numbers: Numbers, title: str = "Codes of test images", *, theme: Theme = LIGHT) -> Figure:
    with styled(theme):
        figure, axes = canvas(1, 2, 9.0, 4.9)
        parts = [f"{part:.0%}" for part in numbers["shown"]]
        text = "each point an image the network has not been trained on; colours are classes, which it was never told"
        headed(figure, title, text, theme)
        names = (f"two principal components ({parts[0]} and {parts[1]} of the variance)", "t-SNE")
        for one, key, name, agree in zip(axes, ("pca", "tsne"), names, numbers["agree"][1:], strict=True):
            for c in np.unique(numbers["label"]):
                x, y = numbers[key][:, numbers["label"] == c]
                one.plot(x, y, ".", markersize=4, color=COLOURS[c % len(COLOURS)], label=str(c))
                one.text(np.median(x), np.median(y), str(c), fontsize=11, weight="bold", color=theme.ink)
            one.set_title(name, fontweight="normal")
            one.set(xticks=[], yticks=[], xlabel=f"{agree:.0%} of ten neighbours have the same class")
    return figure
