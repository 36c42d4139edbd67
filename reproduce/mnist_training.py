"""A training loop of one's own around the library's loss, which can be stopped after any epoch and goes on from a checkpoint."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from nescio.infer.elbo import NegativeELBO
from nescio.infer.elbo_graph import RecordedELBO
from nescio.noise import Noise
from nescio.store import newest, save_checkpoint

EVERY = 20.0  # seconds between checkpoints


@final
class Training:
    """Adam with a cosine to zero. Shuffles and noise are keyed by the epoch, so a run that was stopped ends as it would have."""

    def __init__(self, loss: NegativeELBO, lr: float, epochs: int, batch: int, noise: Noise) -> None:
        self.loss, self.lr, self.epochs, self.batch, self.noise = loss, lr, epochs, batch, noise
        self.parameters = list(loss.parameters())
        self.adam = torch.optim.Adam(self.parameters, lr=lr, fused=True)
        self.saved, self.elbo = time.monotonic(), math.nan
        self.estimate = RecordedELBO(loss).estimate if loss.q.rest.is_cuda else loss.estimate

    def epoch(self, number: int, x: Tensor, y: Tensor) -> None:
        noise, n = self.noise.at("epoch", number), len(y)
        batches = noise.at("order").permutations(1, n)[0].split(self.batch)
        total = torch.zeros((), dtype=torch.float64, device=x.device)
        with noise.scope():
            for i, rows in enumerate(batches):
                part = (number + i / len(batches)) / self.epochs
                for group in self.adam.param_groups:
                    group["lr"] = self.lr * 0.5 * (1 + math.cos(math.pi * part))
                self.adam.zero_grad()
                total += self.estimate(x[rows], y[rows])
                self.adam.step()
        self.elbo = float(total) / len(batches)
        if not math.isfinite(self.elbo):
            raise SystemExit(f"the bound is {self.elbo} after epoch {number}")

    def due(self) -> bool:
        return time.monotonic() - self.saved > EVERY

    def save(self, folder: Path, curve: list[dict[str, Any]]) -> None:
        """After as many epochs as the curve has."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"q.{name}": x.detach() for name, x in self.loss.q.state_dict().items()}
        for i, p in enumerate(self.parameters):
            tensors |= {f"adam.{i}.{key}": value for key, value in self.adam.state[p].items()}
        save_checkpoint(folder, len(curve), tensors, {"curve": curve, "elbo": self.elbo})
        self.saved = time.monotonic()

    def resume(self, folder: Path) -> list[dict[str, Any]]:
        """The curve so far, with everything else as it was then; an empty one without a checkpoint."""
        kept = newest(folder) if folder.is_dir() else None
        if kept is None:
            return []
        self.loss.q.load_state_dict({name[2:]: x for name, x in kept.tensors.items() if name.startswith("q.")})
        for i, p in enumerate(self.parameters):
            prefix = f"adam.{i}."
            own = {name[len(prefix) :]: x.to(p.device) for name, x in kept.tensors.items() if name.startswith(prefix)}
            self.adam.state[p] = own
        self.elbo = float(kept.header["elbo"])  # type: ignore[arg-type]
        return list(kept.header["curve"])  # type: ignore[call-overload]
