r"""Networks with a latent variable for each datum: variational autoencoders (Kingma & Welling, 2014; Rezende et al., 2014).

    z ~ N(0, I),  x ~ p(x | decoder(z));      q(z | x) = N(mean(x), sd(x)²),  z = mean + sd ∘ ε

The network gives q and what the decoder says of draws from it; which bound that makes is the likelihood's, `Latent(...)`. Noise is
torch's own, which every method lends a keyed state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from nescio.errors import InputError
from nescio.nets.dense import Dense
from nescio.nets.sizes import require_sizes

Activation = Callable[[], nn.Module]
LEAST = 1e-6  # of a standard deviation of q: log sd stays finite


def noise(like: Tensor) -> Tensor:
    """ε: standard normal, one for each datum, sample and latent."""
    return torch.randn_like(like)


@final
class Encoder(nn.Module):
    """(mean, sd) of a Gaussian, sd by softplus: two heads on one body."""

    def __init__(self, body: nn.Module, mean: nn.Module, scale: nn.Module) -> None:
        super().__init__()
        self.body, self.mean, self.scale = body, mean, scale

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        return self.mean(h), softplus(self.scale(h)) + LEAST


@final
class Beside(nn.Module):
    """A network of one vector, for two: they are flattened and laid side by side."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, given: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        return self.net(torch.cat([x.flatten(1), given.flatten(1)], 1))


@final
class VAE(nn.Module):
    """`encoder(x)` is (mean, sd) of q(z|x), each (N, latent), `decoder(z)` what the likelihood of a datum takes; both any modules.

    With a condition the network is called on (x, given), and so are encoder and decoder; `latent_prior(given)` is then (mean, sd) of
    p(z | given), N(0, I) without one. `binarise`: each value of x in [0, 1] is a coin's probability, thrown anew at every call
    (zeros and ones stay themselves). `samples`: draws of z a datum, which `Latent` sets.
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        latent: int,
        *,
        latent_prior: nn.Module | None = None,
        binarise: bool = False,
        samples: int = 1,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.latent_prior = encoder, decoder, latent_prior
        self.latent, self.binarise, self.samples = latent, binarise, samples

    def extra_repr(self) -> str:
        return f"latent={self.latent}, binarise={self.binarise}, samples={self.samples}"

    def forward(self, x: Tensor, given: Tensor | None = None) -> dict[str, Tensor]:
        """mean, scale (B, Z); z (B, S, Z); pixels (B, S, ...); `seen`, what was thrown; `prior_mean`, `prior_scale`."""
        also: dict[str, Tensor] = {}
        if self.binarise:
            x = (torch.rand_like(x) < x).to(x.dtype)
            also["seen"] = x
        condition = () if given is None else (given,)
        if self.latent_prior is not None:
            also["prior_mean"], also["prior_scale"] = self.latent_prior(*condition)
        mean, scale = self.encoder(x, *condition)
        wide = (len(mean), self.samples, *mean.shape[1:])
        z = mean[:, None] + scale[:, None] * noise(mean[:, None].expand(wide))
        repeated = (given.repeat_interleave(self.samples, 0),) if given is not None else ()
        pixels = self.decoder(z.flatten(0, 1), *repeated).unflatten(0, wide[:2])
        return {"mean": mean, "scale": scale, "z": z, "pixels": pixels, **also}


@final
class Autoencoder(nn.Module):
    """decoder(encoder(x)): a code without a law, for the comparison."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, latent: int) -> None:
        super().__init__()
        self.encoder, self.decoder, self.latent = encoder, decoder, latent

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


def dense(width_in: int, hidden: int, layers: int, activation: Activation) -> tuple[list[nn.Module], int]:
    """Hidden layers, and how wide what comes out is."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [Dense(width_in, hidden), activation()]
        width_in = hidden
    return parts, width_in


def gaussian(inputs: int, hidden: int, latent: int, layers: int, activation: Activation) -> Encoder:
    body, width = dense(inputs, hidden, layers, activation)
    return Encoder(nn.Sequential(*body), Dense(width, latent), Dense(width, latent))


def sequence(inputs: int, hidden: int, outputs: int, layers: int, activation: Activation) -> nn.Sequential:
    body, width = dense(inputs, hidden, layers, activation)
    return nn.Sequential(*body, Dense(width, outputs))


def require(inputs: int, hidden: int, latent: int, layers: int) -> None:
    require_sizes(("inputs", inputs), ("hidden", hidden), ("latent", latent))
    if isinstance(layers, bool) or not isinstance(layers, int) or layers < 0:
        raise InputError("layers must be a whole number of at least 0", repr(layers), "2 is usual, 0 is a linear model")


def vae(
    inputs: int = 784,
    hidden: int = 500,
    latent: int = 20,
    *,
    layers: int = 2,
    activation: Activation = nn.ReLU,
    binarise: bool = False,
) -> VAE:
    """784-500-500-{mean, softplus sd} and 20-500-500-784, as in the KAIST tutorial; `layers=0` is linear: probabilistic PCA.

    model = Model(vae(784, 500, 20), Normal(0, 1), Latent(ContinuousBernoulli()))
    posterior = fit(model, (x, x), MAP(epochs=20))
    """
    require(inputs, hidden, latent, layers)
    encoder = gaussian(inputs, hidden, latent, layers, activation)
    return VAE(encoder, sequence(latent, hidden, inputs, layers, activation), latent, binarise=binarise)


def cvae(
    inputs: int,
    hidden: int,
    latent: int,
    given: int,
    *,
    layers: int = 2,
    activation: Activation = nn.ReLU,
    learned_prior: bool = False,
    binarise: bool = False,
) -> VAE:
    """A conditional VAE (Sohn et al., 2015): x is (images, given), given one-hot labels (N, classes) or another image, flattened.

    `given`: how many numbers it has. `learned_prior`: p(z | given) is a network's, too, else N(0, I).

        fit(Model(cvae(784, 500, 20, 10), Normal(0, 1), Latent(ContinuousBernoulli())), ((x, one_hot), x), MAP())
    """
    require(inputs, hidden, latent, layers)
    require_sizes(("given", given))
    encoder = Beside(gaussian(inputs + given, hidden, latent, layers, activation))
    decoder = Beside(sequence(latent + given, hidden, inputs, layers, activation))
    latent_prior = gaussian(given, hidden, latent, layers, activation) if learned_prior else None
    return VAE(encoder, decoder, latent, latent_prior=latent_prior, binarise=binarise)


def autoencoder(
    inputs: int = 784, hidden: int = 500, latent: int = 20, *, layers: int = 2, activation: Activation = nn.ReLU
) -> Autoencoder:
    """The same layers without noise and without a law of the code; fitted with the likelihood of the pixels itself."""
    require(inputs, hidden, latent, layers)
    encoder = sequence(inputs, hidden, latent, layers, activation)
    return Autoencoder(encoder, sequence(latent, hidden, inputs, layers, activation), latent)
