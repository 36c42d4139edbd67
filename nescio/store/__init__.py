"""Files: named tensors and a JSON header, written whole or not at all, and read back exactly or refused.

Beside them the store of a run: its checkpoints, the log of its draws, and the lock on its folder.
"""

from __future__ import annotations

from nescio.store.checkpoint import Checkpoint, newest, save_checkpoint
from nescio.store.chunks import Stretch
from nescio.store.lock import locked
from nescio.store.log import DrawLog
from nescio.store.reader import Log, LogReader, read_log
from nescio.store.state import flatten, unflatten
from nescio.store.tensors import read, write

__all__ = [
    "Checkpoint",
    "DrawLog",
    "Log",
    "LogReader",
    "Stretch",
    "flatten",
    "locked",
    "newest",
    "read",
    "read_log",
    "save_checkpoint",
    "unflatten",
    "write",
]
