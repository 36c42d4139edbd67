"""Named tensors and a header in one safetensors file, sealed with a SHA-256 over all of it.

Nothing read from a file is ever executed. Equal contents give equal bytes, and neither writing nor reading holds a
second copy of all tensors in memory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from nescio.errors import FileError, InputError
from nescio.store.atomic import file_name, replace_file
from nescio.store.header import decode, encode
from nescio.store.layout import MOST_DIMENSIONS, build, take
from nescio.store.plain import encodable
from nescio.store.seal import CODES, Seal, as_bytes, fault

_RESTORE = "restore the file from a copy or write it again with nescio"


def write(path: str | os.PathLike[str], tensors: dict[str, Tensor], header: dict[str, object]) -> None:
    """Write tensors and header to `path`, replacing what was there as a whole or not at all.

    Each tensor is stored in full, whether or not it shares memory with another, and without its graph or its device.
    """
    text = encode(header)
    if not isinstance(tensors, dict):
        raise InputError("tensors must be a dict", type(tensors).__name__, "pass a dict from names to tensors")
    for name in tensors:
        if not isinstance(name, str) or name == "__metadata__" or not encodable(name):
            raise InputError("each tensor must have a str as its name", ascii(name)[:80], "choose another name")
    ready = {name: _ready(name, tensors[name]) for name in sorted(tensors)}
    seal = Seal(text)
    for name, tensor in ready.items():
        seal.add(name, tensor)
    # Wide numbers come first, so that every tensor is aligned to its own width.
    ordered = sorted(ready.items(), key=lambda item: (-item[1].element_size(), item[0]))
    start = build(ordered, {"nescio": text, "sha256": seal.hex()})
    size = len(start) + sum(tensor.nbytes for _, tensor in ordered)
    replace_file(path, _chunks(start, ordered), size, lambda temporary: _scan(temporary, lambda name, tensor: None))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, object]]:
    """The tensors and the header in the file at `path`, exactly as written; anything else is a FileError."""
    tensors: dict[str, Tensor] = {}
    header = _scan(file_name(path), tensors.__setitem__)
    return tensors, header


def _ready(name: str, tensor: Tensor) -> Tensor:
    """The tensor as plain numbers in memory, or the reason why it cannot be stored."""
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        raise InputError("each value must be a dense tensor", f"{type(tensor).__name__} at {name!r}", "make it dense")
    if tensor.dtype not in CODES:
        allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in CODES)
        raise InputError(f"dtype must be one of {allowed}", f"{tensor.dtype} at {name!r}", "convert it first")
    if tensor.dim() > MOST_DIMENSIONS:
        must = f"a tensor must have at most {MOST_DIMENSIONS} dimensions"
        raise InputError(must, f"{tensor.dim()} at {name!r}", "reshape it first")
    plain = tensor.detach().cpu().resolve_neg().contiguous()
    reason = fault(plain)
    if reason:
        raise InputError("every tensor must be sound", f"{reason} in {name!r}", "find out where they arise")
    return plain


def _chunks(start: bytes, tensors: list[tuple[str, Tensor]]) -> Iterator[memoryview]:
    yield memoryview(start)
    for _, tensor in tensors:
        yield as_bytes(tensor)


def _scan(path: str, keep: Callable[[str, Tensor], None]) -> dict[str, object]:
    """Check the whole file, handing over tensor by tensor; they may be used only when this has returned."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):  # to open a pipe would be to wait for ever
            what = "a folder" if stat.S_ISDIR(mode) else "something that is not a plain file"
            raise FileError("path must name a file", f"{what} at {path!r}", "check the name")
        with open(path, "rb") as file:
            metadata, places = take(file)
            if "nescio" not in metadata:
                got = f"another safetensors file at {path!r}"
                raise FileError("the file must be one of nescio's", got, "check the name")
            header = decode(metadata["nescio"], path)
            seal = Seal(metadata["nescio"])
            reasons = []
            for name in sorted(places):
                place = places[name]
                tensor = torch.empty(place.shape, dtype=place.dtype, device="cpu")
                file.seek(place.offset)
                if file.readinto(as_bytes(tensor)) != tensor.nbytes:
                    raise ValueError("a file that was cut while it was read")
                seal.add(name, tensor)
                reasons += [reason] if (reason := fault(tensor)) else []
                keep(name, tensor)
        _check_seal(seal.hex(), metadata.get("sha256", ""))
        if reasons:  # after the seal, for damage is the likelier cause
            raise ValueError(reasons[0])
        return header
    except FileError:
        raise
    except FileNotFoundError:
        raise FileError("the file must exist", f"no file at {path!r}", "check the name and the folder") from None
    except OSError as error:
        got = f"{error.strerror or error} for {path!r}"
        raise FileError("the file must be readable", got, "check the disk and your rights to the file") from error
    except ValueError as error:
        raise FileError("the file must be one of nescio's and whole", f"{error} at {path!r}", _RESTORE) from None
    except (MemoryError, RuntimeError) as error:  # torch has no kind of its own for this
        raise FileError(
            "the tensors must fit into memory", f"too large a file, {path!r}", "free some memory"
        ) from error


def _check_seal(found: str, stored: str) -> None:
    if found != stored:
        raise ValueError("content that does not match its SHA-256")
