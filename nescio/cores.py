"""Blocks of chains at once, each on a core of its own.

Chains have nothing to tell each other while machine code runs, and products of small networks are too small to be divided among cores:
so the chains are. Torch counts its threads for each thread of the process; those of a worker are one, and everybody else's stay as they
were. A block is also small enough for the memory near its core.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

NEAR = 16 * 2**20  # bytes of a step on a CPU: of more, C's library hands memory back and fetches it anew each time
Result = TypeVar("Result")


def blocks(chains: int, size: int) -> list[slice]:
    """Of chains that take `size` bytes each: equal ones, for each core one or more; all in one where there are none of a fitting size."""
    most = min(NEAR // max(size, 1), -(-chains // torch.get_num_threads()))
    group = next((n for n in range(most, most // 2, -1) if chains % n == 0), chains)
    return [slice(first, first + group) for first in range(0, chains, group)]


def each(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """What they give, in their order."""
    cores = torch.get_num_threads()
    if cores == 1 or len(tasks) == 1:
        return [task() for task in tasks]
    return [done.result() for done in [workers(cores, os.getpid()).submit(task) for task in tasks]]


@cache
def workers(count: int, process: int) -> ThreadPoolExecutor:
    """Threads in which torch takes one core; of this process, for a fork has none of its parent's."""
    started = threading.Barrier(count + 1)

    def start() -> None:
        torch.get_num_threads()  # the first call in a thread takes the number of all, and would undo the next
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(count, "nescio", initializer=start)
    for _ in range(count):
        pool.submit(int)
    started.wait()
    torch.set_num_threads(count)  # what the workers have set is also what new threads begin with
    return pool
