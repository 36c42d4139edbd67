"""The end of a draw log, where its one writer adds chunks: whatever fails there, the next chunk goes behind whole ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

from nescio.errors import FileError
from nescio.store import atomic
from nescio.store.chunks import Stretch, encode_chunk
from nescio.store.reader import LogReader


class End(NamedTuple):
    """Where the file ends, the number of the chunk to write there, and the draws before it."""

    position: int
    sequence: int
    draws: int


class Tail:
    """The open file. `end` is one value, set once a chunk is written, so that no interrupt can part its numbers."""

    def __init__(self, path: str) -> None:
        """Find the end of what is whole, and cut off the rest: `cut` bytes."""
        reader = LogReader(path)
        for _ in reader.stretches():
            pass
        self.path, self.head = path, reader.head
        self.end = End(reader.position, reader.sequence, reader.draws)
        self.ends = reader.ends  # block: chains, last step
        try:
            self._file: int | None = os.open(path, os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise atomic.disk_error("the log must be open for writing", error, path) from error
        try:
            self.cut = self.trim()
        except BaseException:
            self.close()
            raise

    def file(self) -> int:
        if self._file is None:
            raise FileError("a log must be open", f"a closed one at {self.path!r}", "open it again")
        return self._file

    def trim(self) -> int:
        """Cut off what lies behind the end: how many bytes."""
        file = self.file()
        try:
            extra = os.fstat(file).st_size - self.end.position
            if extra < 0:
                got = f"one that was cut back, {self.path!r}"
                raise FileError("a log must be changed by its writer only", got, "open it again")
            if extra:
                _cut(file, self.end.position)
                _sync(file)
        except OSError as error:
            raise atomic.disk_error("the log must be cut back", error, self.path) from error
        return extra

    def write(self, stretch: Stretch) -> None:
        """Add a chunk, or leave the file as it was."""
        parts, frame = encode_chunk(stretch, self.end.sequence, self.head.seed)
        file, end = self.file(), self.end
        self.trim()  # after a failure before, when even the trim below has failed
        try:
            _add(file, parts)
            self.end = End(end.position + frame.size(), end.sequence + 1, end.draws + frame.draws)
        except BaseException as error:
            with contextlib.suppress(FileError):  # the first error is the one to tell
                self.trim()
            if isinstance(error, OSError):
                raise atomic.disk_error("the draws must be written in full", error, self.path) from error
            raise

    def sync(self) -> None:
        try:
            _sync(self.file())
        except OSError as error:
            raise atomic.disk_error("the log must be flushed to the disk", error, self.path) from error

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


# Each step is a function of its own, so that a test can stop the work at every one.


def _add(file: int, parts: Iterable[memoryview]) -> None:
    atomic._write(file, parts)


def _sync(file: int) -> None:
    atomic._fsync(file)


def _cut(file: int, size: int) -> None:
    os.ftruncate(file, size)
