"""Tasks at once, each on a core of its own: chains of machine code, which have nothing to tell each other while it runs.

Products of small networks are too small to be divided among cores, so the chains are. Torch counts its threads for each thread of the
process; those of a worker are one, and everybody else's stay as they were.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

Result = TypeVar("Result")


def each(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """What they give, in their order. However this ends, none is at work any more: they may write into what is the caller's."""
    cores = torch.get_num_threads()
    if cores == 1 or len(tasks) == 1:
        return [task() for task in tasks]
    begun = [workers(cores, os.getpid()).submit(task) for task in tasks]
    try:
        return [task.result() for task in begun]
    except BaseException:
        for task in begun:
            task.cancel()
        wait(begun)
        raise


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
