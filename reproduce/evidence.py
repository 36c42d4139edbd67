"""The form in which a table is kept: one JSON file with seeds, commit, versions and machine, nothing entered by hand."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import nescio

RESULTS = Path(__file__).resolve().parent / "results"


def commit() -> str:
    """NESCIO_COMMIT, for a copy that is no repository or not at the commit it was made from; else that of this checkout."""
    if given := os.environ.get("NESCIO_COMMIT"):
        return given
    try:
        here = Path(__file__).resolve().parent
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        return found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def origin() -> dict[str, Any]:
    """Where a number was made: commit, versions, machine."""
    versions = {"nescio": nescio.__version__, "torch": torch.__version__, "numpy": np.__version__}
    versions["python"] = platform.python_version()
    return {"commit": commit(), "versions": versions, "machine": f"{os.cpu_count()}-core CPU"}


def write(
    table: str,
    command: str,
    rows: Sequence[dict[str, Any]],
    seeds: Sequence[int],
    quick: bool,
    out: Path,
    made: dict[str, Any],
) -> Path:
    """results/<table>.json. `made`: the origin of the numbers. A quick run is marked as one and never overwrites a full one."""
    head = {"table": table, "command": command, "quick": quick, "seeds": list(seeds)}
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{table}{'.quick' if quick else ''}.json"
    path.write_text(json.dumps(plain({**head, **made, "rows": list(rows)}), indent=1, allow_nan=False) + "\n")
    return path


def plain(tree: Any) -> Any:
    """With null for what is not a finite number: JSON has no word for it, and strict readers refuse NaN."""
    if isinstance(tree, dict):
        return {name: plain(x) for name, x in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [plain(x) for x in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree
