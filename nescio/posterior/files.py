"""`load(path, model)`: a stored posterior back into the model it belongs to, or a clear refusal. No file names code."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch import Tensor

from nescio.errors import FileError, InputError
from nescio.model import Model
from nescio.posterior.draws import Draws
from nescio.posterior.gaussian import GaussianPosterior
from nescio.posterior.linear_head import LinearHead
from nescio.posterior.mixture import Mixture
from nescio.posterior.posterior import Posterior
from nescio.posterior.variational import Variational
from nescio.store import read

KINDS: dict[str, Callable[[Model, dict[str, Tensor], dict[str, Any]], Posterior]] = {
    "Draws": Draws.restore,
    "GaussianPosterior": GaussianPosterior.restore,
    "LinearHead": LinearHead.restore,
    "Variational": Variational.restore,
}


def load(path: str | os.PathLike[str], model: Model) -> Posterior:
    """The posterior that `save` wrote, checked against the model: same network, prior and likelihood."""
    if not isinstance(model, Model):
        raise InputError("load takes the Model of the posterior", type(model).__name__, "write load(path, model)")
    tensors, header = read(path)
    stored, own = header.get("model"), model.describe()
    if not isinstance(stored, dict) or stored != own:
        differs = [key for key in own if not isinstance(stored, dict) or stored.get(key) != own[key]]
        first = differs[0] if differs else "model"
        got = shorten(stored.get(first) if isinstance(stored, dict) else stored)
        raise FileError(
            f"{os.fspath(path)} must hold a posterior of this model", f"another {first}: {got}", "build the same model"
        )
    return restore(model, header, tensors, os.fspath(path))


def restore(model: Model, header: dict[str, Any], tensors: dict[str, Tensor], path: str) -> Posterior:
    kind, info = header.get("kind"), header.get("info")
    info = info if isinstance(info, dict) else {}
    device, dtype = model.network.like.device, model.network.like.dtype
    if kind == "Mixture":
        listed, parts = header.get("parts"), []
        if not isinstance(listed, list) or not listed or not all(isinstance(part, dict) for part in listed):
            raise FileError(f"{path} must list the parts of its mixture", shorten(listed), "write it again with nescio")
        for i, part in enumerate(listed):
            own = {name.removeprefix(f"{i}."): x for name, x in tensors.items() if name.startswith(f"{i}.")}
            parts.append(restore(model, part, own, path))
        return Mixture(parts, info)
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileError(
            f"{path} must hold a known kind of posterior", repr(kind), f"the kinds are {sorted([*KINDS, 'Mixture'])}"
        )
    theta = tensors.get("theta")
    if theta is not None and (theta.shape[-1:] != (model.dim,) or theta.dtype != dtype):
        got = f"{tuple(theta.shape)} {theta.dtype}"
        raise FileError(f"{path} must hold draws of {model.dim} {dtype} numbers", got, "build the same model")
    for name, x in tensors.items():
        if theta is not None and name.startswith("trace.") and x.shape != theta.shape[:2]:
            must, got = f"{path} must hold one {name} for each draw", f"{tuple(x.shape)} for {tuple(theta.shape[:2])}"
            raise FileError(must, got, "write it again with nescio")
    try:
        return KINDS[kind](model, {name: x.to(device) for name, x in tensors.items()}, info)
    except KeyError as error:
        raise FileError(f"{path} must hold all of a {kind}", f"no {error}", "write it again with nescio") from None


def shorten(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else text[:197] + "..."
