"""From expressions and inputs to a model: standardised inputs in front of the network, the target's units inside the likelihood."""

from __future__ import annotations

import torch
from torch import nn

from nescio import expressions
from nescio.data import standardize
from nescio.errors import InputError
from nescio.likelihoods import Bernoulli, Categorical, Heteroscedastic
from nescio.likelihoods.likelihood import Likelihood
from nescio.likelihoods.numbers import in_units
from nescio.model import Model
from nescio.noise import Noise
from nescio.runs.inputs import Inputs


def build(inputs: Inputs, net: str, prior: str, likelihood: str, seed: int) -> Model:
    """The same model for the same texts and seed, in every process."""
    observed = expressions.likelihood(likelihood)
    if inputs.units is not None:
        observed = in_units(observed, inputs.units.loc, inputs.units.scale)
    sizes = {"outputs": outputs(observed, inputs)}
    if len(inputs.shape) == 1:
        sizes["inputs"] = inputs.shape[0]
    else:
        sizes |= {
            "channels": inputs.shape[0],
            "size": inputs.shape[-1],
            "inputs": int(torch.tensor(inputs.shape).prod()),
        }
    with Noise(seed).at("net").scope():
        layers = expressions.net(net, **sizes)
    front: list[nn.Module] = [] if inputs.scaling is None else [standardize(inputs.scaling)]
    if len(inputs.shape) > 1 and isinstance(layers, nn.Sequential) and isinstance(layers[0], nn.Linear):
        front.append(nn.Flatten())  # mlp(...) of images
    whole = nn.Sequential(*front, layers).float() if front else layers.float()
    return Model(whole, expressions.prior(prior), observed)


def outputs(likelihood: Likelihood, inputs: Inputs) -> int:
    """How many numbers the network has to give for one row."""
    if isinstance(likelihood, (Categorical, Bernoulli)) != bool(inputs.classes):
        kind = f"{len(inputs.classes)} classes" if inputs.classes else "a numeric target"
        remedy = (
            "use Categorical()" if inputs.classes else "use Gaussian(Learned(1.)) or Heteroscedastic(), or --classes"
        )
        raise InputError("the likelihood must fit the target", f"{type(likelihood).__name__} for {kind}", remedy)
    if isinstance(likelihood, Bernoulli):
        if len(inputs.classes) != 2:
            raise InputError("Bernoulli() is for two classes", str(len(inputs.classes)), "use Categorical()")
        return 1
    if inputs.classes:
        return len(inputs.classes)
    return len(inputs.target) * (2 if isinstance(likelihood, Heteroscedastic) else 1)
