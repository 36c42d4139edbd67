"""A posterior from a run that was stopped: what its last stage had drawn by then, read from the logs."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from nescio.model import Model
from nescio.posterior.draws import Draws
from nescio.store import read_log

LAST_STAGE = re.compile(r"(second\.)*block-(\d+)\.draws")  # of a >> b, only what b drew belongs to the posterior


def drawn_so_far(model: Model, folder: Path, seed: int) -> Draws | None:
    """None if the last stage has drawn nothing yet. Blocks of chains are cut to the length of the shortest."""
    if not folder.is_dir():
        return None
    found = [(match, path) for path in folder.iterdir() if (match := LAST_STAGE.fullmatch(path.name))]
    if not found:
        return None
    deepest = max(path.name.count("second.") for _, path in found)
    if any(path.is_dir() and path.name.count("second.") > deepest for path in folder.iterdir()):
        return None  # a later stage has begun, and drawn nothing
    parts = sorted((int(match[2]), path) for match, path in found if path.name.count("second.") == deepest)
    blocks = [block for _, path in parts if (block := read_log(path).blocks.get(0)) is not None and len(block.steps)]
    if not blocks:
        return None
    length = min(len(block.steps) for block in blocks)
    theta = torch.cat([block.values[:length].transpose(0, 1) for block in blocks])  # (chains, draws, dim)
    density = torch.cat([block.scalars["log_density"][:length].transpose(0, 1) for block in blocks])
    like = model.network.like
    statistics = {name: torch.stack([b] * len(theta)) for name, b in model.network.statistics().items()}
    info = {"interrupted": True, "seed": seed, "draws": length, "chains": len(theta)}
    return Draws(model, theta.to(like).contiguous(), density.to(like).contiguous(), statistics, info)
