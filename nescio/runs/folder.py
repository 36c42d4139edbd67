"""The folder of a run: what it was asked, how rows are encoded, the posterior, its scores, and what it was made with."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from nescio.errors import FileError
from nescio.model import Model
from nescio.posterior import Posterior, load
from nescio.runs.build import build
from nescio.runs.config import Config, read_config
from nescio.runs.given import Given, read_given
from nescio.runs.inputs import Inputs, read_inputs
from nescio.store.atomic import replace_file
from nescio.version import __version__

POSTERIOR, METRICS, FIT = "posterior.safetensors", "metrics.json", "fit"


@final
@dataclass(frozen=True, eq=False)
class Run:
    """A folder with its configuration and its inputs, read and checked."""

    folder: Path
    config: Config
    inputs: Inputs
    notes: tuple[str, ...] = ()  # what was done to the data and chosen for the user

    def model(self) -> Model:
        config = self.config
        return build(self.inputs, config.net, config.prior, config.likelihood, config.seed)

    def given(self) -> Given:
        """The data of the run, which must be those it was begun with."""
        config = self.config
        path = self.folder / config.data if config.copied else Path(config.data)
        if (found := digest(path)) != config.sha256:
            got = f"{path} with another checksum {found[:12]}"
            raise FileError(
                "a run must be gone on with the data it was begun with", got, "put the file back, or begin anew"
            )
        return read_given(
            path,
            config.target if self.inputs.encoding is not None else (),
            test=config.test,
            seed=config.seed,
            as_classes=config.as_classes,
            drop_missing_targets=config.drop_missing_targets,
            ignore=config.ignore,
        )

    @property
    def finished(self) -> bool:
        return finished(self.folder)

    def posterior(self) -> Posterior:
        path = self.folder / POSTERIOR
        if not path.is_file():
            remedy = f"go on with: nescio fit --resume {self.folder}"
            raise FileError(f"{self.folder} must hold a posterior", "a run that has not got one yet", remedy)
        return load(path, self.model())

    def metrics(self) -> dict[str, Any]:
        try:
            return json.loads((self.folder / METRICS).read_text(encoding="utf-8"))
        except OSError as error:
            raise FileError(
                f"{self.folder} must hold {METRICS}", str(error.strerror), "finish the run first"
            ) from error
        except ValueError as error:
            raise FileError(f"{METRICS} must be JSON", str(error)[:80], "run `nescio fit` again") from error


def open_run(folder: str | os.PathLike[str]) -> Run:
    place = Path(folder)
    config = read_config(place)
    notes_file = place / "notes.json"
    notes: tuple[str, ...] = ()
    if notes_file.is_file():
        try:
            notes = tuple(str(note) for note in json.loads(notes_file.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            notes = ()
    return Run(place, config, read_inputs(place), notes)


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    content = memoryview(text.encode())
    replace_file(path, [content], len(content), verify=os.stat)


def environment() -> dict[str, str]:
    """Versions and kind of machine; nothing that tells whose."""
    return {
        "nescio": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
    }


def digest(path: Path) -> str:
    """Of a file's bytes, or of the names and bytes of all files below a folder."""
    total = hashlib.sha256()
    try:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            if path.is_dir():
                total.update(os.fsencode(file.relative_to(path)) + b"\0")
            with open(file, "rb") as stream:
                while block := stream.read(1 << 20):
                    total.update(block)
    except OSError as error:
        raise FileError(
            f"{path}: the data must be there and readable", error.strerror or str(error), "check the path"
        ) from error
    return total.hexdigest()


def finished(folder: Path) -> bool:
    return (folder / POSTERIOR).is_file() and not (folder / FIT).exists()
