"""Results in the form that the reproductions have, with the peers' versions and the processor."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PEERS = HERE.parent / ".peers" / "bin" / "python"


def evidence() -> ModuleType:
    """reproduce/evidence.py: one form for every table."""
    spec = importlib.util.spec_from_file_location("evidence", HERE.parent / "reproduce" / "evidence.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def processor() -> str:
    """The model of the processor, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def load() -> list[float] | None:
    """How busy the machine is: above one process on an otherwise idle machine, numbers are disturbed."""
    return [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None


def keep(
    table: str,
    command: str,
    rows: Sequence[dict[str, Any]],
    seeds: Sequence[int],
    quick: bool,
    out: Path,
    peers: dict[str, str],
    settings: dict[str, Any],
) -> Path:
    form = evidence()
    made = {**form.origin(), "processor": processor(), "peers": peers, "settings": settings}
    return form.write(table, command, rows, seeds, quick, out, made)


def join(
    table: str,
    command: str,
    rows: Sequence[dict[str, Any]],
    seeds: Sequence[int],
    quick: bool,
    out: Path,
    peers: dict[str, str],
    settings: dict[str, Any],
) -> Path:
    """The whole table; or, where one is kept that has other rows too, these among them: no run throws away what it did not measure."""
    path = out / f"{table}.json"
    before = [] if quick or not path.exists() else json.loads(path.read_text())["rows"]
    if {row["row"] for row in before} <= {row["row"] for row in rows}:
        return keep(table, command, rows, seeds, quick, out, peers, settings)
    return renew(table, rows, out, peers, settings)


def renew(
    table: str, rows: Sequence[dict[str, Any]], out: Path, peers: dict[str, str], settings: dict[str, Any]
) -> Path:
    """Some rows of a table that is kept, measured anew. They say at which commit, and the table what else there is to say of that."""
    path, form = out / f"{table}.json", evidence()
    kept, origin = json.loads(path.read_text()), form.origin()
    commit = origin.pop("commit")
    kept["renewed"] = kept.get("renewed", {}) | {
        commit: {**origin, "processor": processor(), "peers": peers, "settings": settings}
    }
    new = {row["row"]: {**row, "commit": commit} for row in rows}
    kept["rows"] = [*(new.pop(row["row"], row) for row in kept["rows"]), *new.values()]
    path.write_text(json.dumps(form.plain(kept), indent=1, allow_nan=False) + "\n")
    return path
