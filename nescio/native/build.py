"""Text in C to a function in memory, by the machine's own compiler. Nothing is left on the disk."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from nescio.native.places import Unsupported

FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math")
FLAGS += ("-fno-strict-aliasing", "--param=vect-max-peeling-for-alignment=0")  # sums in one order wherever numbers lie
FLAGS += ("-ffp-contract=fast", "-shared", "-fPIC", "-w")
PATIENCE = 120  # seconds; it takes about one
PRELUDE = Path(__file__).with_name("prelude.h")


def compiler() -> str | None:
    return shutil.which(os.environ.get("CC") or "gcc") or shutil.which("cc")


@lru_cache(maxsize=32)
def built(text: str) -> Any:
    """The function `run` of a whole text. It stays loaded: somebody may be in it."""
    cc = compiler()
    if cc is None:
        raise Unsupported("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "code.c"), Path(folder, "code.so")
        source.write_text(text)
        command = [cc, *FLAGS, str(source), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        if done.returncode:
            raise Unsupported(done.stderr.strip().splitlines()[0] if done.stderr.strip() else "the C compiler failed")
        run = ctypes.CDLL(str(library)).run
    pointers = ctypes.POINTER(ctypes.c_void_p)
    run.argtypes = [pointers, pointers, pointers, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    run.restype = ctypes.c_int64
    return run
