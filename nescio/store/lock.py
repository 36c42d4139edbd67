"""One run at a time in a folder: a lock that the system drops when its holder ends, however it ends.

The file says who holds the lock, for the message only; the file staying behind means nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from nescio.errors import FileError, UnsupportedError
from nescio.store.atomic import disk_error, file_name
from nescio.store.plain import parse

_NAME = "lock"
_MOST_BYTES = 4096
_PATIENCE = 0.5  # seconds in which the holder will have written its name


@contextlib.contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the folder inside; a FileError says who holds it if it is not free.

    A process forked inside holds it too, until it ends or runs another program.
    """
    path = os.path.join(file_name(folder), _NAME)
    try:
        # Never removed: somebody may be about to lock it.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise disk_error("a run needs a folder to write into", error, path) from error
    try:
        try:
            free = _take(descriptor)
            if free:
                _sign(descriptor)
        except OSError as error:
            raise disk_error("a run must be able to lock its folder", error, path) from error
        if not free:
            got = f"{os.fspath(folder)!r} held by {_holder(descriptor)}"
            raise FileError(
                "a folder must serve one run at a time", got, "wait for it, end it or choose another folder"
            )
        yield
    finally:
        os.close(descriptor)  # this drops the lock


def _take(descriptor: int) -> bool:
    """Take the lock if nobody has it."""
    try:
        import fcntl
    except ImportError:
        raise UnsupportedError("the system must have flock", os.name, "use Linux or macOS") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(descriptor: int) -> None:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": started})
    os.ftruncate(descriptor, 0)
    os.write(descriptor, text.encode())


def _holder(descriptor: int) -> str:
    """Who holds the lock, in words."""
    patient = time.monotonic() + _PATIENCE
    while True:
        try:
            content = parse(os.pread(descriptor, _MOST_BYTES, 0), _MOST_BYTES, 1)
            if isinstance(content, dict):
                pid, host, started = (ascii(content[key])[:80].strip("'") for key in ("pid", "host", "started"))
                return f"process {pid} on {host} since {started}"
        except (OSError, ValueError, KeyError):
            pass
        if time.monotonic() > patient:
            return "another process"
        time.sleep(0.01)
