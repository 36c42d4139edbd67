"""Reference networks: plain `nn.Module`s that know nothing of Bayes, so that any law and any method can take them.

Each one runs under `torch.func.functional_call` and under `vmap` over stacked parameters.
"""

from __future__ import annotations

from nescio.nets.conv_vae import conv_vae
from nescio.nets.dense import Dense
from nescio.nets.flow import Flow, flow
from nescio.nets.lenet import lenet5
from nescio.nets.m2 import M2, m2
from nescio.nets.mlp import lenet_300_100, mlp
from nescio.nets.norm import FilterResponseNorm
from nescio.nets.recurrent import lstm_classifier
from nescio.nets.resnet import resnet20
from nescio.nets.segmenter import segmenter
from nescio.nets.vae import VAE, Autoencoder, Encoder, autoencoder, cvae, vae

__all__ = [
    "M2",
    "VAE",
    "Autoencoder",
    "Dense",
    "Encoder",
    "FilterResponseNorm",
    "Flow",
    "autoencoder",
    "conv_vae",
    "cvae",
    "flow",
    "lenet5",
    "lenet_300_100",
    "lstm_classifier",
    "m2",
    "mlp",
    "resnet20",
    "segmenter",
    "vae",
]
