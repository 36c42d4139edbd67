"""Files are written whole or not at all, and read back exactly or refused with a FileError."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from nescio.errors import FileError, InputError
from nescio.store import atomic, header, read, tensors, write
from nescio.store import layout as layout_module
from nescio.store.state import flatten, unflatten

Content = tuple[dict[str, Tensor], dict[str, object]]
DTYPES = [*tensors.CODES]
STEPS = ["_check_target", "_check_space", "_open", "_write", "_fsync", "_read_back", "_replace", "_fsync_folder"]
OLD: Content = ({"w": torch.arange(6.0).reshape(2, 3)}, {"made": "old"})
NEW: Content = ({"w": torch.arange(8.0)}, {"made": "new"})


def same(a: Content, b: Content) -> bool:
    """Equal to the bit: names, dtypes, shapes, bytes and header."""
    return (
        json.dumps(a[1]) == json.dumps(b[1])
        and sorted(a[0]) == sorted(b[0])
        and all(x.dtype == b[0][n].dtype and x.shape == b[0][n].shape for n, x in a[0].items())
        and all(bytes(tensors.as_bytes(x)) == bytes(tensors.as_bytes(b[0][n])) for n, x in a[0].items())
    )


def sample() -> Content:
    """A small file with a bit of everything."""
    generator = torch.Generator().manual_seed(7)
    content: dict[str, Tensor] = {"empty": torch.zeros(0, 3), "scalar": torch.tensor(-2.5, dtype=torch.float64)}
    for dtype in DTYPES:
        content[str(dtype)] = torch.randint(0, 2, (2, 5), generator=generator).to(dtype)
    return content, {"name": "näme", "list": [1, 2.5, None, True], "nested": {"a": {"b": []}}}


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Path, bytes, Content]:
    """A good file, its bytes and its content."""
    path = tmp_path / "whole.nescio"
    write(path, *sample())
    return path, path.read_bytes(), sample()


def refused(path: Path, data: bytes) -> FileError:
    path.write_bytes(data)
    with pytest.raises(FileError) as caught:
        read(path)
    error = caught.value
    assert error.must
    assert error.got
    assert error.remedy
    assert "\n" not in str(error)
    return error


def raw(path: Path, text: str, content: dict[str, Tensor], seal: str | None = None) -> bytes:
    """A file with any text as its header, rightly sealed unless told otherwise."""
    save_file(content, path, {"nescio": text, "sha256": header_seal(text, content) if seal is None else seal})
    return path.read_bytes()


def header_seal(text: str, content: dict[str, Tensor]) -> str:
    seal = tensors.Seal(text)
    for name in sorted(content):
        seal.add(name, content[name])
    return seal.hex()


def layout(entries: dict[str, object], size: int) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


# Round trips


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7,), (2, 3, 4)], ids=str)
def test_round_trip(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    content = ({"t": torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(1)).to(dtype)}, {})
    write(tmp_path / "f", *content)
    assert same(read(tmp_path / "f"), content)


@pytest.mark.parametrize("path_type", [str, Path, os.fsencode])
def test_round_trip_of_everything(path_type: Callable[[Path], str], tmp_path: Path) -> None:
    content = sample()
    write(path_type(tmp_path / "f"), *content)
    assert same(read(path_type(tmp_path / "f")), content)
    write(path_type(tmp_path / "f"), {}, {})
    assert read(path_type(tmp_path / "f")) == ({}, {})


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.booleans(), st.none(), st.text()
)
HEADERS = st.dictionaries(
    st.text().filter(lambda key: key not in ("format", "versions")),
    st.recursive(NUMBERS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8),
    max_size=4,
)
NAMES = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda name: name != "__metadata__")
TENSORS = st.tuples(
    st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3), st.integers(0, 2**32), st.booleans()
)


def drawn(dtype: torch.dtype, shape: list[int], seed: int, turned: bool) -> Tensor:
    values = torch.randint(-50, 50, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return values.T if turned and len(shape) == 2 else values


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(recipes=st.dictionaries(NAMES, TENSORS, max_size=4), extra=HEADERS)
def test_round_trip_of_anything(
    recipes: dict[str, tuple[torch.dtype, list[int], int, bool]],
    extra: dict[str, object],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.getbasetemp() / "anything.nescio"
    content = {name: drawn(*recipe) for name, recipe in recipes.items()}
    write(path, content, extra)
    assert same(read(path), ({name: tensor.contiguous() for name, tensor in content.items()}, extra))


def test_equal_content_gives_equal_bytes(whole: tuple[Path, bytes, Content], tmp_path: Path) -> None:
    content, extra = whole[2]
    write(tmp_path / "again", dict(reversed(content.items())), extra)
    assert (tmp_path / "again").read_bytes() == whole[1]


def test_views_parameters_and_shared_memory(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    parameter = torch.nn.Parameter(base.reshape(3, 4))
    turned, wide = base.reshape(3, 4).T, torch.ones(1).expand(1000)
    negative = torch.complex(torch.zeros(2), torch.ones(2)).conj().imag
    write(tmp_path / "f", {"p": parameter, "t": turned, "w": wide, "n": negative, "a": base, "b": base[3:]}, {})
    loaded, _ = read(tmp_path / "f")
    assert torch.equal(loaded["p"], base.reshape(3, 4))
    assert not loaded["p"].requires_grad
    assert torch.equal(loaded["t"], turned)
    assert torch.equal(loaded["w"], torch.ones(1000))
    assert torch.equal(loaded["n"], -torch.ones(2))
    loaded["a"].zero_()
    assert torch.equal(loaded["b"], base[3:])


@pytest.mark.parametrize("value", [0.25, float("nan")])
def test_one_number_that_was_expanded(value: float, tmp_path: Path) -> None:
    """It is contiguous, whatever its stride."""
    one = torch.tensor(value, dtype=torch.float64).expand(1).contiguous()
    assert one.stride() == (0,)
    tensors, structure = flatten({"one": one})
    write(tmp_path / "file", tensors, {})
    again = unflatten(read(tmp_path / "file")[0], structure)["one"]
    assert again.shape == (1,) and torch.equal(again, one.clone()) is (value == value)


def test_loaded_tensors_do_not_depend_on_the_file(whole: tuple[Path, bytes, Content]) -> None:
    path, data, content = whole
    loaded = read(path)
    path.write_bytes(bytes(len(data)))
    assert same(loaded, content)


def test_the_library_reads_the_file_and_finds_the_versions(whole: tuple[Path, bytes, Content]) -> None:
    with safe_open(whole[0], "pt") as file:
        assert set(file.metadata()) == {"nescio", "sha256"}
        text = json.loads(file.metadata()["nescio"])
        assert torch.equal(file.get_tensor("scalar"), whole[2][0]["scalar"])
    assert text["format"] == 1
    assert set(text["versions"]) == {"nescio", "torch", "numpy", "safetensors"}


# What write refuses


def deep(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


CIRCLE: dict[str, object] = {}
CIRCLE["self"] = CIRCLE


@pytest.mark.parametrize(
    "extra",
    [
        {"a": {1, 2}},
        {1: 2},
        {"a": {2: 1}},
        {"a": float("nan")},
        {"a": [float("inf")]},
        {"a": torch.zeros(1)},
        {"a": b"bytes"},
        {"a": "x" * (1 << 20)},
        {"a": 10**5000},
        {"format": 2},
        {"versions": {}},
        deep(33),
        deep(100_000),
        CIRCLE,
        [1, 2],
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, dict) or "a" not in value else None,
)
def test_header_must_be_plain_json(extra: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        write(tmp_path / "f", {}, extra)
    assert os.listdir(tmp_path) == []


def test_header_at_its_limits(tmp_path: Path) -> None:
    room = (1 << 20) - len(header.encode({"a": ""}))
    extras: list[dict[str, object]] = [deep(32), {"a": "x" * room}, {"a": '[{"\\' * 100}]
    for extra in extras:
        write(tmp_path / "f", {}, extra)
        assert read(tmp_path / "f") == ({}, extra)
    with pytest.raises(InputError):
        write(tmp_path / "f", {}, {"a": "x" * (room + 1)})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_values_must_be_finite(value: float, dtype: torch.dtype, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="weight"):
        write(tmp_path / "f", {"fine": torch.zeros(2), "weight": torch.tensor([0, value], dtype=dtype)}, {})


@pytest.mark.parametrize(
    "content",
    [
        {"a": torch.zeros(2, dtype=torch.complex64)},
        {"a": torch.zeros(2, device="meta")},
        {"a": torch.eye(2).to_sparse()},
        {"a": torch.tensor([2], dtype=torch.uint8).view(torch.bool)},
        {"a": [1.0]},
        {1: torch.zeros(1)},
        {"__metadata__": torch.zeros(1)},
        {"\ud800": torch.zeros(1)},
        {"a": torch.zeros([1] * 65)},
        [torch.zeros(1)],
    ],
    ids=str,
)
def test_tensors_must_be_dense_and_named(content: dict[str, Tensor], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        write(tmp_path / "f", content, {})
    assert os.listdir(tmp_path) == []


# Damaged and foreign files


def test_every_truncation_is_refused(whole: tuple[Path, bytes, Content]) -> None:
    path, data, _ = whole
    for length in range(len(data)):
        refused(path, data[:length])
    refused(path, data + b"\0")


def wrong_loads(path: Path, data: bytes, content: Content) -> int:
    """How many damaged files are read as something else; all bits of the first 200 bytes, and 2000 bits anywhere."""
    draw = random.Random(5)
    bits = [*range(8 * 200), *(draw.randrange(8 * len(data)) for _ in range(2000))]
    wrong = 0
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            loaded = read(path)
        except FileError:
            continue
        wrong += not same(loaded, content)
    return wrong


def test_bit_flips_never_give_a_wrong_tensor(whole: tuple[Path, bytes, Content]) -> None:
    assert wrong_loads(*whole) == 0


def test_without_the_hash_bit_flips_are_found(
    whole: tuple[Path, bytes, Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "_check_seal", lambda found, stored: None)
    assert wrong_loads(*whole) > 0


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.mark}'",)


def foreign(folder: Path) -> dict[str, bytes]:
    """Files that are not nescio's, or are but should not be believed."""
    scratch, zeros = folder / "scratch", {"a": torch.zeros(2)}
    found: dict[str, bytes] = {"empty": b"", "text": b"Hello, world, this is a file.\n"}
    bomb = Bomb(folder / "exploded")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found[f"pickle {protocol}"] = pickle.dumps(bomb, protocol)
    for name, zipped in (("zip", True), ("legacy", False)):
        torch.save({"a": bomb}, scratch, _use_new_zipfile_serialization=zipped)
        found[f"torch {name}"] = scratch.read_bytes()
    save_file(zeros, scratch)
    found["safetensors"] = scratch.read_bytes()
    save_file(zeros, scratch, {"format": "pt"})
    found["safetensors of pt"] = scratch.read_bytes()
    start = '{"format":1,"versions":{}'
    for name, text in {
        "not JSON": "{",
        "list": "[1]",
        "no format": "{}",
        "format true": '{"format":true}',
        "format 0": '{"format":0}',
        "format 1.0": '{"format":1.0}',
        "NaN": start + ',"a":NaN}',
        "1e999": start + ',"a":1e999}',
        "digits": start + f',"a":{"9" * 5000}}}',
        "deep 33": start + ',"a":' + "[" * 32 + "]" * 32 + "}",
        "deep list": "[" * 500_000 + "]" * 500_000,
        "deep dict": '{"a":' * 150_000 + "1" + "}" * 150_000,
        "large": start + f',"a":"{"x" * (1 << 20)}"}}',
        "quotes": '"' + '\\"' * 400_000,
    }.items():
        found[name] = raw(scratch, text, zeros)
    whole = start + "}"
    found["bad seal"] = raw(scratch, whole, zeros, "0" * 64)
    found["no seal"] = raw(scratch, whole, zeros, "")
    found["not finite"] = raw(scratch, whole, {"a": torch.tensor([1.0, float("nan")])})
    found["bad bool"] = raw(scratch, whole, {"a": torch.tensor([2], dtype=torch.uint8).view(torch.bool)})
    save_file({"a": torch.zeros(2, dtype=torch.complex64)}, scratch, {"nescio": whole, "sha256": "0"})
    found["complex"] = scratch.read_bytes()
    meta = {"nescio": whole, "sha256": header_seal(whole, {})}
    for name, entries, size in (
        ("overlap", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, 12),
        ("hole", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 12, 20)}, 20),
        ("past the end", {"a": entry("F32", [2], 0, 8)}, 4),
        ("left over", {"a": entry("F32", [2], 0, 8)}, 9),
        ("wrong size", {"a": entry("F32", [3], 0, 8)}, 8),
        ("unknown dtype", {"a": entry("F31", [2], 0, 8)}, 8),
        ("backwards", {"a": entry("F32", [2], 8, 0)}, 8),
        ("vast", {"a": entry("F32", [2**62, 2**62], 0, 8)}, 8),
        ("vast and empty", {"a": entry("F32", [0, 2**63], 0, 0)}, 0),
        ("negative", {"a": entry("F32", [-2], 0, 8)}, 8),
        ("half a pair", {"\ud800": entry("F32", [2], 0, 8)}, 8),
        ("too many dimensions", {"a": entry("F32", [1] * 65, 0, 4)}, 4),
        ("true", {"a": entry("U8", [True], 0, 1)}, 1),
        ("extra field", {"a": {**entry("U8", [1], 0, 1), "more": 1}}, 1),
        ("number", {"a": 1}, 0),
        ("deep layout", {"a": [[[1]]]}, 0),
        ("text for shape", {"a": entry("F32", "x", 0, 8)}, 8),
    ):
        found[name] = layout({"__metadata__": meta, **entries}, size)
    twice = json.dumps({"__metadata__": meta, "a": entry("U8", [1], 0, 1)}).replace('"a":', '"a": 1, "a":').encode()
    found["twice"] = len(twice).to_bytes(8, "little") + twice + b"\0"
    found["metadata of numbers"] = layout({"__metadata__": {"nescio": 1}}, 0)
    found["half a pair in the header"] = layout({"__metadata__": {**meta, "nescio": whole + "\ud800"}}, 0)
    found["metadata of nothing"] = layout({"__metadata__": None}, 0)
    for length in (2**63, 2**64 - 1, 10**9, 100_000_001):
        found[f"length {length}"] = length.to_bytes(8, "little") + b"{}" + bytes(50)
    scratch.unlink()
    return found


def entry(dtype: str, shape: object, begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    errors = {name: refused(tmp_path / "f", data) for name, data in foreign(tmp_path).items()}
    assert "safetensors" in errors["safetensors"].got
    assert "safetensors" in errors["safetensors of pt"].got
    assert "pickle" in errors["torch zip"].got
    assert "pickle" in errors["pickle 4"].got
    assert "SHA-256" in errors["bad seal"].got
    assert "not finite" in errors["not finite"].got
    assert "neither 0 nor 1" in errors["bad bool"].got
    for name in ("overlap", "hole", "past the end", "left over"):
        assert "fill the file" in errors[name].got
    assert "dtype" in errors["complex"].got
    assert "dtype" in errors["unknown dtype"].got
    assert "levels" in errors["deep list"].got
    assert "MiB" in errors["large"].got
    assert not (tmp_path / "exploded").exists()


def test_an_absurd_length_is_refused_before_anything_is_read_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_module, "parse", None)
    assert "cut or foreign" in refused(tmp_path / "f", (2**40).to_bytes(8, "little") + bytes(100)).got
    assert "cut or foreign" in refused(tmp_path / "f", (101).to_bytes(8, "little") + b"{" * 100).got


def test_what_is_accepted_the_library_accepts_too(whole: tuple[Path, bytes, Content]) -> None:
    """Layouts with one byte changed: never more lenient than the library, which sees the same dtypes and shapes."""
    path, data, _ = whole
    draw = random.Random(11)
    accepted = 0
    for _ in range(2000):
        changed = bytearray(data)
        changed[8 + draw.randrange(int.from_bytes(data[:8], "little"))] = draw.choice(b'0123456789[]{},":FIUB \\eu-')
        path.write_bytes(changed)
        try:
            with open(path, "rb") as file:
                _, places = layout_module.take(file)
        except ValueError:
            continue
        accepted += 1
        with safe_open(path, "pt") as file:
            theirs = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        assert {n: (t.dtype, tuple(t.shape)) for n, t in theirs.items()} == {n: p[:2] for n, p in places.items()}
    assert 0 < accepted < 2000


def test_a_newer_format_says_who_made_it(tmp_path: Path) -> None:
    error = refused(tmp_path / "f", raw(tmp_path / "g", '{"format":7,"versions":{"nescio":"9.8.7"}}', {}, "other"))
    assert "9.8.7" in error.got
    assert "newer nescio" in error.remedy
    assert "None" in refused(tmp_path / "f", raw(tmp_path / "g", '{"format":7}', {})).got


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "plain").write_bytes(b"")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe", tmp_path / "plain" / "below", "", "a\0b"):
        with pytest.raises(FileError):
            read(path)
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "plain" / "below", tmp_path / "no" / "f", "", "a\0b"):
        with pytest.raises(FileError):
            write(path, *NEW)
    number: Any = 3  # to the system an open file
    for call in (read, lambda path: write(path, *NEW)):
        with pytest.raises(InputError):
            call(number)
    assert sorted(os.listdir(tmp_path)) == ["pipe", "plain"]


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    write(path, {"t": torch.zeros(100_000)}, {})

    def cutting(file: BinaryIO) -> object:
        found = layout_module.take(file)
        os.truncate(path, 200_000)
        return found

    monkeypatch.setattr(tensors, "take", cutting)
    with pytest.raises(FileError, match="cut while"):
        read(path)


@pytest.mark.parametrize("kind", [MemoryError(), RuntimeError("cannot allocate"), OSError(errno.EIO, "planted")])
def test_a_reading_that_fails(
    kind: Exception, whole: tuple[Path, bytes, Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: object, **named: object) -> Tensor:
        raise kind

    monkeypatch.setattr(torch, "empty", failing)
    assert "memory" in (error := refused(whole[0], whole[1])).must or "planted" in error.got


# Writing that is stopped


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kind", [OSError(errno.EIO, "planted"), RuntimeError("planted"), KeyboardInterrupt("planted")])
@pytest.mark.parametrize("step", STEPS)
def test_a_failed_step_leaves_the_old_file(
    step: str, kind: BaseException, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    write(path, *OLD)
    true_step = getattr(atomic, step)

    def failing(*arguments: object) -> None:
        if moment == "after":
            true_step(*arguments)
        raise kind

    monkeypatch.setattr(atomic, step, failing)
    expected = FileError if isinstance(kind, OSError) else type(kind)
    with pytest.raises(expected, match="planted"):
        write(path, *NEW)
    replaced = step == "_fsync_folder" or (step, moment) == ("_replace", "after")
    assert same(read(path), NEW if replaced else OLD)
    assert os.listdir(tmp_path) == ["f"]


def test_a_writer_that_is_not_atomic_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    write(path, *OLD)

    def failing(*arguments: object) -> None:
        raise OSError(errno.EIO, "planted")

    monkeypatch.setattr(atomic, "_open", lambda temporary, mode: os.open(path, os.O_WRONLY | os.O_TRUNC))
    monkeypatch.setattr(atomic, "_write", failing)
    with pytest.raises(FileError):
        write(path, *NEW)
    with pytest.raises(FileError):
        read(path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.ENOENT, errno.EIO])
def test_disk_errors_have_a_remedy(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(FileError) as caught:
        write(tmp_path / "f", *NEW)
    assert os.strerror(number) in caught.value.got
    assert caught.value.remedy


def test_a_real_limit_on_the_size_of_files(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path, *OLD)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        with pytest.raises(FileError, match="limit"):
            write(path, {"w": torch.zeros(10_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert same(read(path), OLD)
    assert os.listdir(tmp_path) == ["f"]


def test_space_is_checked_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    write(path, *OLD)
    opened: list[str] = []
    usage = atomic.shutil.disk_usage(tmp_path)
    size = path.stat().st_size
    monkeypatch.setattr(atomic, "_open", lambda temporary, mode: opened.append(temporary))
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda folder: usage._replace(free=int(2.1 * size)))
    with pytest.raises(FileError, match="free"):
        write(path, *OLD)
    assert opened == []
    monkeypatch.undo()
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda folder: usage._replace(free=int(2.3 * size)))
    write(path, *OLD)
    assert same(read(path), OLD)


def test_the_disk_that_lies_is_found_on_reading_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    write(path, *OLD)

    def lying(descriptor: int, chunks: Iterable[memoryview]) -> None:
        data = bytearray(b"".join(chunks))
        data[-1] ^= 1
        os.write(descriptor, data)

    monkeypatch.setattr(atomic, "_write", lying)
    with pytest.raises(FileError, match="read back"):
        write(path, *NEW)
    assert same(read(path), OLD)
    assert os.listdir(tmp_path) == ["f"]


def test_links_are_followed_and_permissions_kept(tmp_path: Path) -> None:
    path, link = tmp_path / "f", tmp_path / "link"
    write(path, *OLD)
    path.chmod(0o600)
    link.symlink_to(path)
    write(link, *NEW)
    assert link.is_symlink()
    assert same(read(path), NEW)
    assert path.stat().st_mode & 0o777 == 0o600


def child(script: str, *arguments: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


# One child imports torch and forks a writer for each step, which kills itself there.
KILLED = """
import os, signal, sys
import torch
from nescio.store import atomic, write

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def dying(step, moment):
    true_step = getattr(atomic, step)
    def function(*arguments):
        if moment == "half":
            os.write(arguments[0], bytes(next(iter(arguments[1]))[:99]))
        if moment == "after":
            true_step(*arguments)
        die()
    return function

for folder in sys.argv[1:]:
    step, moment = os.path.basename(folder).split(".")
    pid = os.fork()
    if pid == 0:
        setattr(atomic, step, dying(step, moment))
        write(folder + "/f", {"w": torch.arange(8.0)}, {"made": "new"})
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, folder
"""


def test_a_killed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    folders = [tmp_path / f"{step}.{moment}" for step in STEPS for moment in ("before", "after")]
    folders.append(tmp_path / "_write.half")
    for folder in folders:
        folder.mkdir()
        write(folder / "f", *OLD)
    with child(KILLED, *folders) as process:
        assert process.wait() == 0
    replaced = {"_replace.after", "_fsync_folder.before", "_fsync_folder.after"}
    for folder in folders:
        assert same(read(folder / "f"), NEW if folder.name in replaced else OLD), folder.name
    assert len(os.listdir(tmp_path / "_write.half")) == 2  # the kill was real: its temporary file is left over


def numbered(number: int) -> Content:
    return {"t": torch.full((500,), float(number))}, {"number": number}


def check_numbered(content: Content) -> None:
    number = content[1]["number"]
    assert isinstance(number, int)
    assert same(content, numbered(number))


def test_threads_that_write_at_once_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path, *numbered(0))
    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, path, *numbered(number)) for number in range(40)]
        while not all(writer.done() for writer in writers):
            check_numbered(read(path))
    assert [writer.exception() for writer in writers] == [None] * 40
    check_numbered(read(path))
    assert os.listdir(tmp_path) == ["f"]


WRITERS = """
import os, sys
import torch
from nescio.store import write

children = []
for worker in range(3):
    pid = os.fork()
    if pid == 0:
        for number in range(100 * worker, 100 * worker + 20):
            write(sys.argv[1], {"t": torch.full((500,), float(number))}, {"number": number})
        os._exit(0)
    children.append(pid)
sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))
"""


def test_processes_that_write_at_once_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path, *numbered(999))
    with child(WRITERS, path) as process:
        while process.poll() is None:
            check_numbered(read(path))
    assert process.returncode == 0
    assert read(path)[1]["number"] in (19, 119, 219)
    assert os.listdir(tmp_path) == ["f"]


# Reading runs nothing


AUDIT = """
import json, os, pickle, sys
from nescio.errors import FileError
from nescio.store import read

folder, good = sys.argv[1:]
names = sorted(os.listdir(folder))
read(good)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
BAD = ("pickle", "exec", "compile", "import", "subprocess", "socket", "os.", "shutil", "ctypes", "code.")
seen, refused, loaded = [], 0, 0

def hook(event, arguments):
    if event.startswith(BAD) or (event == "open" and arguments[2] & WRITING):
        seen.append(event)

sys.addaudithook(hook)
for name in names:
    try:
        read(os.path.join(folder, name))
        loaded += 1
    except FileError:
        refused += 1
by_reading, seen = seen, []
# The hook is awake: each of these is seen.
pickle.loads(b"cos\\ngetpid\\n.")
exec("1")
open(os.devnull, "w").close()
sys.stdout.write(json.dumps([by_reading, refused, loaded, seen]))
"""


def test_reading_hostile_files_runs_nothing(tmp_path: Path, whole: tuple[Path, bytes, Content]) -> None:
    folder = tmp_path / "hostile"
    folder.mkdir()
    hostile = [*foreign(tmp_path).values()]
    draw = random.Random(3)
    while len(hostile) < 500:
        data = bytearray(whole[1])
        if len(hostile) % 3 == 0:
            data = data[: draw.randrange(len(data))]
        elif len(hostile) % 3 == 1:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            data = bytearray(draw.randbytes(draw.randrange(300)))
        hostile.append(bytes(data))
    for number, data in enumerate(hostile):
        (folder / f"{number:03}").write_bytes(data)
    with child(AUDIT, folder, whole[0]) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    by_reading, refused_, loaded, seen = json.loads(output)
    assert by_reading == []
    assert refused_ + loaded == 500
    assert loaded == 0
    assert {"pickle.find_class", "exec", "open"} <= set(seen)
    assert not (tmp_path / "exploded").exists()
