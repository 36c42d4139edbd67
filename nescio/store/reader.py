"""Reading a draw log back, chunk by chunk or whole.

Only one chunk is held at a time besides the result. The file is read and not mapped into memory, and opened anew each time, so
a reader may follow a log that is being written, cut back or replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from nescio.errors import FileError
from nescio.store.atomic import file_name
from nescio.store.chunks import Frame, Stretch, find, take_frame, take_head, take_stretch


class Log(NamedTuple):
    """The content of a draw log."""

    header: dict[str, object]
    blocks: dict[int, Stretch]  # by the number of the block
    cut: int  # bytes behind the last good chunk that were left out
    lost: int  # chunks left out before it, when salvaging


def read_log(path: str | os.PathLike[str], salvage: bool = False) -> Log:
    """All draws up to the first chunk that is not whole; with `salvage`, all but those in chunks that are not whole."""
    counter, reader = LogReader(path), LogReader(path)
    counts: dict[int, int] = {}
    for stretch in counter.stretches(None, salvage):
        counts[stretch.block] = counts.get(stretch.block, 0) + len(stretch.steps)
    columns = reader.head.columns
    blocks = {b: columns.empty(b, count, counter.ends[b][0]) for b, count in counts.items()}
    filled = dict.fromkeys(counts, 0)
    for stretch in reader.stretches(counter.draws, salvage):  # a live log may have grown since it was counted
        begin = filled[stretch.block]
        filled[stretch.block] = end = begin + len(stretch.steps)
        for whole, part in zip(blocks[stretch.block].parts(), stretch.parts(), strict=True):
            whole[begin:end] = part
    if filled != counts:
        raise FileError("a log must not be cut back while it is read", f"that at {reader.path!r}", "read it again")
    cut = max(0, os.path.getsize(reader.path) - reader.position)
    return Log(reader.head.header, blocks, cut, reader.lost)


class LogReader:
    """Reads a log chunk by chunk; asked again, it goes on with what has been added in the meantime."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = file_name(path)
        with _opened(self.path) as file:
            self.head = take_head(file, self.path)
        self.position, self.sequence = self.head.size, 1  # of the next chunk
        self.draws = 0
        self.lost = 0
        self.ends: dict[int, tuple[int, int]] = {}  # block: chains, last step

    def stretches(self, most: int | None = None, salvage: bool = False) -> Iterator[Stretch]:
        """The draws up to the first chunk that is not whole, or that would bring their number above `most`."""
        with _opened(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < self.position:
                got = f"{size:,} bytes where there were {self.position:,}, in {self.path!r}"
                raise FileError("a log that is followed must not be cut back", got, "read it again from its start")
            position: int | None = self.position
            while position is not None:
                try:
                    frame, total = take_frame(file, position, size, self.head.seed)
                    self._check(frame, salvage)
                    if most is not None and self.draws + frame.draws > most:
                        return
                    stretch = take_stretch(file, frame, total, self.head.columns)
                except ValueError:
                    position = find(file, position + 1) if salvage else None
                    continue
                self.lost += frame.sequence - self.sequence
                self.sequence, self.draws = frame.sequence + 1, self.draws + frame.draws
                self.position = position = position + frame.size()
                self.ends[frame.block] = frame.chains, frame.last
                yield stretch

    def _check(self, frame: Frame, gaps: bool) -> None:
        check_sequence(frame.sequence, self.sequence, gaps)
        chains, last = self.ends.get(frame.block, (frame.chains, frame.first - 1))
        if frame.chains != chains or frame.first <= last:
            raise ValueError("a chunk that does not go on from the last one")


def check_sequence(found: int, wanted: int, gaps: bool) -> None:
    if found < wanted or (found > wanted and not gaps):
        raise ValueError(f"chunk {found} where {wanted} should be")


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # to open a pipe would be to wait for ever
            raise FileError("path must name a file", f"something else at {path!r}", "check the name")
        with open(path, "rb") as file:
            yield file
    except FileError:
        raise
    except FileNotFoundError:
        raise FileError("the file must exist", f"no file at {path!r}", "check the name and the folder") from None
    except OSError as error:
        got = f"{error.strerror or error} for {path!r}"
        raise FileError("the file must be readable", got, "check the disk and your rights to the file") from error
