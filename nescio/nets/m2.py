r"""The semi-supervised model M2 (Kingma et al., 2014): a label and a style for each datum, the label seldom seen.

    y ~ uniform,  z ~ N(0, I),  x ~ p(x | decoder(z, y));      q(y | x) = softmax(label(x)),  q(z | x, y) Gaussian

Its likelihood is `PartlyLabelled`.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from nescio.nets.sizes import require_sizes
from nescio.nets.vae import Activation, Beside, gaussian, noise, require, sequence


@final
class LabelAndCode(nn.Module):
    """What is inferred: `label(x)` logits, `code(x, y)` (mean, sd)."""

    def __init__(self, label: nn.Module, code: nn.Module) -> None:
        super().__init__()
        self.label, self.code = label, code

    def forward(self, x: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """q(z | x, y) of labels y, one-hot: what `nescio.generative` asks for, on (images, labels)."""
        return self.code(x, given)


@final
class M2(nn.Module):
    """For every class what would be if the datum were of it. `samples`: draws of z, which the likelihood sets."""

    def __init__(self, encoder: LabelAndCode, decoder: nn.Module, latent: int, classes: int, samples: int = 1) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.latent, self.classes, self.samples = latent, classes, samples

    def extra_repr(self) -> str:
        return f"latent={self.latent}, classes={self.classes}, samples={self.samples}"

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """logits (B, C); mean, scale (B, C, Z); z (B, C, S, Z); pixels (B, C, S, ...)."""
        rows, classes, samples = len(x), self.classes, self.samples
        each = torch.eye(classes, dtype=x.dtype, device=x.device).repeat(rows, 1)  # (B C, C)
        mean, scale = self.encoder.code(x.repeat_interleave(classes, 0), each)
        wide = (rows * classes, samples, mean.shape[-1])
        z = mean[:, None] + scale[:, None] * noise(mean[:, None].expand(wide))
        pixels = self.decoder(z.flatten(0, 1), each.repeat_interleave(samples, 0))
        own = {"mean": mean, "scale": scale, "z": z}
        parts = {name: t.unflatten(0, (rows, classes)) for name, t in own.items()}
        return {"logits": self.encoder.label(x), "pixels": pixels.unflatten(0, (rows, classes, samples)), **parts}


def m2(
    inputs: int = 784,
    hidden: int = 500,
    latent: int = 50,
    classes: int = 10,
    *,
    layers: int = 1,
    activation: Activation = nn.Softplus,
) -> M2:
    """As in the paper: one hidden layer of 500 softplus units everywhere, 50 latents.

    fit(Model(m2(), Normal(0, 1), PartlyLabelled(Bernoulli(), 0.1)), (x, {"image": x, "label": y_or_minus_one}), MAP())
    """
    require(inputs, hidden, latent, layers)
    require_sizes(("classes", classes))
    label = sequence(inputs, hidden, classes, layers, activation)
    code = Beside(gaussian(inputs + classes, hidden, latent, layers, activation))
    decoder = Beside(sequence(latent + classes, hidden, inputs, layers, activation))
    return M2(LabelAndCode(label, code), decoder, latent, classes)
