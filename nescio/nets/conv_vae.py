"""A convolutional variational autoencoder of square images."""

from __future__ import annotations

from torch import nn

from nescio.errors import InputError
from nescio.nets.sizes import require_sizes
from nescio.nets.vae import VAE, Encoder


def conv_vae(channels: int = 1, size: int = 28, latent: int = 20, *, filters: int = 32, binarise: bool = False) -> VAE:
    """Two strided convolutions and a dense layer down to the code, and the same way back; images (N, channels, size, size)."""
    require_sizes(("channels", channels), ("size", size), ("latent", latent), ("filters", filters))
    if size % 4:
        raise InputError("conv_vae halves the side of an image twice", f"size={size}", "use a multiple of 4, or pad")
    side, wide = size // 4, 2 * filters
    body = nn.Sequential(
        nn.Conv2d(channels, filters, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(filters, wide, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(wide * side * side, 256),
        nn.ReLU(),
    )
    decoder = nn.Sequential(
        nn.Linear(latent, 256),
        nn.ReLU(),
        nn.Linear(256, wide * side * side),
        nn.ReLU(),
        nn.Unflatten(1, (wide, side, side)),
        nn.ConvTranspose2d(wide, filters, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(filters, channels, 4, stride=2, padding=1),
    )
    return VAE(Encoder(body, nn.Linear(256, latent), nn.Linear(256, latent)), decoder, latent, binarise=binarise)
