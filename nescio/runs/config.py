"""What a run was asked to do: expressions, data, seed. JSON that a person can read and `nescio rerun` can obey."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, final

from nescio.errors import FileError

NAME = "config.json"
FORMAT = 1


@final
@dataclass(frozen=True)
class Config:
    """Everything that decides the result, but for the versions (environment.json) and the data's own bytes (`sha256`)."""

    data: str  # where the data lie; relative to the folder if `copied`
    copied: bool
    sha256: str
    target: tuple[str, ...]
    net: str
    prior: str
    likelihood: str
    method: str
    seed: int
    test: float  # the part of the rows that is held out
    as_classes: bool
    drop_missing_targets: bool
    ignore: tuple[str, ...] = ()
    format: int = FORMAT

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


def read_config(folder: Path) -> Config:
    path = folder / NAME
    try:
        state: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        got = f"{error.strerror or error} for {path}"
        raise FileError("a run folder must hold config.json", got, "give a folder that `nescio fit` made") from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} must be JSON", str(error).split("\n")[0], "run `nescio fit` again") from error
    return checked(state, path)


def checked(state: Any, path: Path) -> Config:
    """The configuration, field by field of the right kind; a damaged or foreign one is refused."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "copied": bool, "as_classes": bool, "drop_missing_targets": bool, "seed": int, "test": (int, float), "format": int,
        "target": list,
        "ignore": list,
    }  # fmt: skip
    names = [field.name for field in fields(Config)]
    if not isinstance(state, dict) or sorted(state) != sorted(names):
        got = "other fields" if isinstance(state, dict) else type(state).__name__
        raise FileError(f"{path} must hold {', '.join(names)}", got, "run `nescio fit` again")
    for name in names:
        kind = kinds.get(name, str)
        if not isinstance(state[name], kind) or (kind is int and isinstance(state[name], bool)):
            raise FileError(f"{path} must hold a right {name}", repr(state[name])[:60], "run `nescio fit` again")
    if state["format"] != FORMAT:
        raise FileError(f"{path} must have format {FORMAT}", str(state["format"]), "use the version that wrote it")
    if not all(isinstance(name, str) for name in [*state["target"], *state["ignore"]]):
        raise FileError(f"{path} must name its targets", repr(state["target"])[:60], "run `nescio fit` again")
    values: dict[str, Any] = {
        **state,
        "target": tuple(state["target"]),
        "ignore": tuple(state["ignore"]),
        "test": float(state["test"]),
    }
    return Config(**values)
