"""Memory that will be needed, asked for before it is taken."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from nescio.errors import InputError

PART = 0.8  # of all that there is


def expect_room(count: int, like: Tensor) -> None:
    """So many numbers of this kind fit into memory."""
    if like.is_cuda:
        whole = torch.cuda.get_device_properties(like.device).total_memory
    elif "SC_PHYS_PAGES" in os.sysconf_names:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        return  # nobody says
    need = count * like.element_size()
    if need > PART * whole:
        got = f"{need / 2**30:,.1f} GiB of {whole / 2**30:,.1f}"
        raise InputError(
            "draws and chains must fit into memory", got, "keep fewer draws (thin=10), or run fewer chains"
        )
