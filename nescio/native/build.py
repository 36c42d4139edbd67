"""Text in C to a function in memory, by the machine's own compiler. Nothing is left on the disk."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from nescio.native.places import Unsupported

FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math")
FLAGS += ("-fno-strict-aliasing", "--param=vect-max-peeling-for-alignment=0")  # sums in one order wherever numbers lie
FLAGS += ("-ffp-contract=fast", "-shared", "-fPIC", "-w")
PATIENCE = 60  # seconds
PRELUDE = Path(__file__).with_name("prelude.h")


def compiler() -> list[str] | None:
    """Its command: CC, which may have arguments, or what there is."""
    try:
        wanted, *arguments = shlex.split(os.environ.get("CC", "")) or ["gcc"]
    except ValueError as error:  # a quotation that does not end
        raise Unsupported(f"CC: {error}") from None
    found = shutil.which(wanted)
    if found is not None:
        return [found, *arguments]
    found = shutil.which("cc")
    return None if found is None else [found]


@lru_cache(maxsize=32)
def built(text: str) -> Any:
    """The function `run` of a whole text. It stays loaded: somebody may be in it."""
    cc = compiler()
    if cc is None:
        raise Unsupported("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "code.c"), Path(folder, "code.so")
        source.write_text(text)
        called([*cc, *FLAGS, str(source), "-o", str(library), "-lm"], folder)
        try:
            run = ctypes.CDLL(str(library)).run
        except OSError as error:
            raise Unsupported(f"what the C compiler made cannot be loaded: {error}") from None
    pointers = ctypes.POINTER(ctypes.c_void_p)
    run.argtypes = [pointers, pointers, pointers, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    run.restype = ctypes.c_int64
    return run


def called(command: list[str], folder: str) -> None:
    """A compiler is several programs: where it takes too long all of them end. What they leave lies in the folder."""
    given = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "errors": "replace"}
    process = subprocess.Popen(command, env={**os.environ, "TMPDIR": folder}, start_new_session=True, **given)
    try:
        _, said = process.communicate(timeout=PATIENCE)
    except BaseException as error:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Unsupported(f"the C compiler was not done after {PATIENCE} seconds") from None
        raise
    if process.returncode:
        lines = said.strip().splitlines() or ["the C compiler failed"]
        raise Unsupported(next((line for line in lines if "error" in line), lines[0]))
