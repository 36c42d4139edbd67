"""Starts a measuring process with its threads set, and reads the JSON line that it prints."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def environment(threads: int, cache: Path) -> dict[str, str]:
    """The same number of threads for every library. `cache`: where torch keeps compiled code; an empty folder is a first run."""
    count = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")}
    quiet = {"JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **count, **quiet, "TORCHINDUCTOR_CACHE_DIR": str(cache)}


def launch(python: str, script: str, spec: Mapping[str, Any], cache: Path, timeout: float = 3600.0) -> dict[str, Any]:
    """Run `script` of this folder with the spec; its last line of output is the answer."""
    values = {**spec, "launched": time.time()}
    command = [python, str(HERE / script), json.dumps(values)]
    done = subprocess.run(
        command, env=environment(spec["threads"], cache), capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{script} {spec}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
