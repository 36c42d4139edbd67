"""Replace a file as a whole or not at all.

The new content goes into a temporary file beside the target, is flushed to the disk and read back, and only then takes
the target's name, which the operating system does in one step. Whatever stops this, from a full disk to a power cut,
leaves the previous file as it was. Each step is a function of its own, so that a test can stop the work at every one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable

from nescio.errors import FileError, InputError

# The old file stays until the new one is complete, and a file system needs room to breathe.
_ROOM = 2.2

_REMEDIES = {
    errno.ENOENT: "create the folder first",
    errno.ENOTDIR: "choose a folder, not a file, to write into",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder on a disk that is not read-only",
    errno.ENOSPC: "free some space or choose another disk",
    errno.EDQUOT: "free some space or choose another disk",
    errno.EFBIG: "raise the limit on the size of a file or choose another disk",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOLCK: "choose a folder on a disk that knows locks, such as a local one",
}


def file_name(path: str | os.PathLike[str]) -> str:
    """The path as text; what cannot be a path is refused here, before anything is opened."""
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise InputError("path must be a str or os.PathLike", type(path).__name__, "pass the name of a file") from None
    if not name or "\0" in name:
        raise FileError("path must name a file", ascii(name), "pass the name of a file")
    return name


def replace_file(
    path: str | os.PathLike[str], chunks: Iterable[memoryview], size: int, verify: Callable[[str], object]
) -> None:
    """Write `chunks` (`size` bytes in all) to `path`; `verify` is given the temporary file and raises if it is bad."""
    # A link is followed, so that the file it points to is replaced and not the link.
    target = os.path.realpath(file_name(path))
    folder = os.path.dirname(target)
    temporary = f"{target}.tmp.{os.getpid()}.{os.urandom(8).hex()}"
    try:
        mode = _check_target(target)
        _check_space(folder, size)
        try:
            descriptor = _open(temporary, mode)
            try:
                _write(descriptor, chunks)
                _fsync(descriptor)
            finally:
                os.close(descriptor)
            _read_back(temporary, verify)
            _replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                os.unlink(temporary)
            raise
    except FileError:
        raise
    except OSError as error:
        raise disk_error("the file must be written in full", error, target) from error
    try:
        _fsync_folder(folder)
    except OSError as error:
        raise FileError(
            "the folder must be flushed to the disk",
            f"{error.strerror or error} for {folder!r}",
            "the new file is in place but may not outlive a power cut: check the disk, then write again",
        ) from error


def sweep(folder: str, pattern: str) -> None:
    """Remove what killed writers left of files whose names match; the caller holds the folder's lock."""
    for name in os.listdir(folder):
        if re.fullmatch(pattern + r"\.tmp\.\d+\.[0-9a-f]{16}", name):
            os.unlink(os.path.join(folder, name))


def disk_error(must: str, error: OSError, path: str) -> FileError:
    """What the system said about the file at `path`, with what would help."""
    if isinstance(error, FileError):
        return error
    remedy = _REMEDIES.get(error.errno or 0, "check the disk, then write again")
    return FileError(must, f"{error.strerror or error} for {path!r}", remedy)


def _check_target(target: str) -> int:
    """The permissions for the new file: those of the old one, if there is one."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return 0o666
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "something that is not a plain file"
        raise FileError("path must name a file", f"{what} at {target!r}", "choose another name")
    return stat.S_IMODE(mode)


def _check_space(folder: str, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < _ROOM * size:
        raise FileError(
            f"{_ROOM} times the size of the file must be free",
            f"{free:,} bytes free in {folder!r} for a file of {size:,}",
            _REMEDIES[errno.ENOSPC],
        )


def _open(temporary: str, mode: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.open(temporary, flags, mode)


def _write(descriptor: int, chunks: Iterable[memoryview]) -> None:
    for chunk in chunks:
        done = 0
        while done < len(chunk):  # the system may take less than it is given
            done += os.write(descriptor, chunk[done:])


def _fsync(descriptor: int) -> None:
    os.fsync(descriptor)


def _read_back(temporary: str, verify: Callable[[str], object]) -> None:
    try:
        verify(temporary)
    except FileError as error:
        raise FileError("the file must read back as written", error.got, "check the disk, then write again") from error


def _replace(temporary: str, target: str) -> None:
    os.replace(temporary, target)


def _fsync_folder(folder: str) -> None:
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call; they order renames themselves.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
