"""What a fitted latent-variable model is asked for: codes, pictures, likelihoods, what is missing. Functions that take a posterior.

posterior = fit(Model(vae(784, 500, 20), Normal(0, 1), Latent(ContinuousBernoulli())), (x, x), MAP(epochs=20))
codes = encode(posterior, x).mean               # (images, 20)
pictures = generate(posterior, 64).mean         # (64, 784)
log_likelihood(posterior, x_test, samples=1000).value.mean()
"""

from __future__ import annotations

from nescio.generative.coding import classify, decode, encode, generate, reconstruct
from nescio.generative.flows import flow_back
from nescio.generative.importance import Evidence, log_likelihood
from nescio.generative.missing import Imputed, impute
from nescio.generative.paths import interpolate, manifold, traverse

__all__ = [
    "Evidence",
    "Imputed",
    "classify",
    "decode",
    "encode",
    "flow_back",
    "generate",
    "impute",
    "interpolate",
    "log_likelihood",
    "manifold",
    "reconstruct",
    "traverse",
]
