"""Data in every form come out as the same rows, and what is not data is refused before any work is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from nescio import InputError
from nescio.data.source import Items, Source, Tensors, source

X = torch.arange(20.0).reshape(10, 2)
Y = torch.arange(100.0, 110.0)[:, None]


class Rows(Dataset[Any]):
    def __init__(self, x: Any = X, y: Any = Y) -> None:
        self.x, self.y = x, y
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.x[index], self.y[index]


class Stream(IterableDataset[Any]):
    """Samples, one by one."""

    def __iter__(self) -> Iterator[Any]:
        return zip(X, Y, strict=True)


class BatchStream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return batches()


def batches(size: int = 4) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, 10, size):
        yield X[start : start + size], Y[start : start + size]


def assert_whole(given: Source) -> None:
    """All rows in order, some rows, rows of two chains, and a subset."""
    assert given.size == 10
    x, y = given.rows(None)
    assert torch.equal(x, X)
    assert torch.equal(y, Y)
    x, y = given.rows(torch.tensor([7, 0, 7]))
    assert torch.equal(x, X[[7, 0, 7]])
    assert torch.equal(y, Y[[7, 0, 7]])
    index = torch.tensor([[1, 2, 3], [3, 9, 0]])
    x, y = given.rows(index)
    assert x.shape == (2, 3, 2)
    assert torch.equal(x, X[index])
    assert torch.equal(y, Y[index])
    part = given.subset(torch.tensor([8, 2]))
    assert part.size == 2
    assert torch.equal(part.rows(None)[0], X[[8, 2]])
    assert torch.equal(part.rows(torch.tensor([1]))[1], Y[[2]])
    assert given.size == 10  # a subset is another source


FORMS = {
    "pair": lambda: (X, Y),
    "list": lambda: [X, Y],
    "TensorDataset": lambda: TensorDataset(X, Y),
    "Dataset": lambda: Rows(),
    "Subset": lambda: Subset(Rows(), range(10)),
    "loader": lambda: DataLoader(Rows(), batch_size=3),
    "loader of tensors": lambda: DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True),
    "loader of a stream": lambda: DataLoader(Stream(), batch_size=3),
    "stream of batches": lambda: BatchStream(),
    "generator": lambda: batches(),
    "two batches": lambda: [(X[:3], Y[:3]), (X[3:], Y[3:])],
    "two batches, as lists": lambda: ([X[:3], Y[:3]], [X[3:], Y[3:]]),
    "one batch": lambda: [(X, Y)],
    "numpy rows": lambda: Rows(X.numpy(), Y.numpy()),  # torch's collate makes tensors of them
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_rows(form: str) -> None:
    assert_whole(source(FORMS[form]()))


def test_a_source_stays_itself() -> None:
    given = source((X, Y))
    assert source(given) is given


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("dataset", [TensorDataset(X, Y), Rows()], ids=["tensors", "items"])
def test_a_loader_says_its_batch_size_and_not_the_order(dataset: Dataset[Any], shuffle: bool) -> None:
    given = source(DataLoader(dataset, batch_size=3, shuffle=shuffle, drop_last=True))
    assert given.batch_size == 3
    assert_whole(given)  # no row dropped, none out of order
    assert source(dataset).batch_size is None
    assert source((X, Y)).batch_size is None


def test_a_sampler_that_leaves_rows_out_is_refused() -> None:
    """The usual split into training and validation rows; ignored, it would train on both."""
    for dataset in (TensorDataset(X, Y), Rows()):
        for sampler in (WeightedRandomSampler([1.0] + [0.0] * 9, 10), SubsetRandomSampler(range(5))):
            with pytest.raises(InputError, match="Subset"):
                source(DataLoader(dataset, batch_size=2, sampler=sampler))
        assert_whole(source(DataLoader(dataset, batch_size=2, shuffle=True)))
    with pytest.raises(InputError, match="Subset"):
        source(DataLoader(Rows(), batch_sampler=[[0, 1], [2]]))  # type: ignore[arg-type]


def test_a_loaders_own_collate_is_used() -> None:
    def doubled(items: list[Any]) -> tuple[Tensor, Tensor]:
        return 2 * torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])

    given = source(DataLoader(Rows(), batch_size=4, collate_fn=doubled))
    assert torch.equal(given.rows(torch.tensor([3, 1]))[0], 2 * X[[3, 1]])
    index = torch.tensor([[3], [1]])
    assert torch.equal(given.rows(index)[0], 2 * X[index])


def test_items_are_fetched_when_they_are_asked_for() -> None:
    rows = Rows()
    given = source(rows)
    assert isinstance(given, Items)
    assert rows.asked == []
    given.rows(torch.tensor([4, 2]))
    given.subset(torch.tensor([9, 5])).rows(torch.tensor([1]))
    assert rows.asked == [4, 2, 5]


def test_a_generator_is_read_once() -> None:
    stream = batches()
    given = source(stream)
    assert isinstance(given, Tensors)
    assert next(stream, None) is None
    assert_whole(given)
    with pytest.raises(InputError, match="at least one batch; got none; a generator can be read only once"):
        source(stream)


def test_inputs_in_tuples_and_dictionaries() -> None:
    left, right = X[:, :1], X[:, 1:]

    class Pairs(Rows):
        def __getitem__(self, index: int) -> Any:
            return (left[index], right[index]), Y[index]

    for data in (((left, right), Y), Pairs(), DataLoader(Pairs(), 3), [((left, right), Y)]):
        x, y = source(data).rows(torch.tensor([2, 5]))
        assert isinstance(x, tuple)  # torch's collate makes a list of it, and a list is not called as arguments
        assert torch.equal(torch.cat(x, 1), X[[2, 5]])
        assert torch.equal(y, Y[[2, 5]])
    x, _ = source(({"a": left, "b": right}, Y)).rows(torch.tensor([2]))
    assert torch.equal(x["b"], right[[2]])
    given = source((X, {"depth": Y, "seg": Y[:, 0].long()}))  # several tasks
    assert given.size == 10
    assert torch.equal(given.rows(torch.tensor([3]))[1]["seg"], torch.tensor([103]))


def test_sources_move() -> None:
    """meta stands for any other device."""
    meta = torch.device("meta")
    for given in (source((X, {"a": Y})), source(Rows()), source(DataLoader(Rows(), batch_size=3))):
        moved = given.to(meta)
        x, y = moved.rows(torch.tensor([1, 2])) if isinstance(given, Items) else moved.rows(None)
        assert x.device == meta
        assert (y["a"] if isinstance(y, dict) else y).device == meta
        assert moved.batch_size == given.batch_size
        assert given.rows(None)[0].device.type == "cpu"
        assert not isinstance(given, Items) or moved.subset(torch.tensor([1])).rows(None)[0].device == meta


# ---- refusals --------------------------------------------------------------------------------------------------------


def holed(value: float) -> Tensor:
    x = X.clone()
    x[3, 1] = x[8, 0] = value
    return x


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_cells_that_are_not_finite_are_named(value: float) -> None:
    cells = r"got 2 NaN or infinite cells, first at \(3, 1\), \(8, 0\); drop or impute these rows"
    for data in ((holed(value), Y), ({"a": X, "b": holed(value)}, Y), [(X[:2], Y[:2]), (holed(value)[2:], Y[2:])]):
        with pytest.raises(InputError, match="x must be finite; got 2 NaN or infinite cells"):
            source(data)
    with pytest.raises(InputError, match=f"x must be finite; {cells}"):
        source((holed(value), Y))
    with pytest.raises(InputError, match=r"y must be finite; got 1 NaN or infinite cells, first at \(4,\); drop"):
        source((X, torch.where(torch.arange(10) == 4, value, 1.0)))
    with pytest.raises(InputError, match=r"y must be finite.*first at \(0, 0\)"):
        source((X, {"depth": Y.clone().fill_(value)}))
    for lazy in (source(Rows(holed(value), Y)), source(DataLoader(Rows(X, Y.clone().fill_(value)), 4))):
        with pytest.raises(InputError, match="must be finite"):
            lazy.rows(None)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:7]), r"same number of rows, at least one; got \[7, 10\] rows; check the first axis"),
        (({"a": X, "b": X[:9]}, Y), r"got \[9, 10\] rows"),
        ((X, {"depth": Y, "seg": Y[:9]}), r"got \[9, 10\] rows"),
        ((X[:0], Y[:0]), r"got \[0\] rows"),
        ((torch.tensor(1.0), torch.tensor(2.0)), r"got \[0\] rows"),
        (TensorDataset(X[:0], Y[:0]), r"got \[0\] rows"),
        ([], "data must hold at least one batch; got none"),
        (DataLoader(TensorDataset(X, Y, Y), 4), "an item must be a pair"),
        (TensorDataset(X), "an item must be a pair"),
        (
            [(X, Y, Y)],
            "an item must be a pair .x, y.; got tuple of length 3; pass tensors .x, y.; put several inputs into a tuple",
        ),
        (X, r"data must be \(x, y\), a Dataset, a DataLoader or batches; got Tensor; pass a pair of tensors"),
        ({"x": X, "y": Y}, "got dict; pass a pair"),
        ("x.csv", "got str; pass a pair"),
        (None, "got NoneType; pass a pair"),
        (7, "got int; pass a pair"),
        ((X.numpy(), Y), r"x must be tensors; got ndarray; use torch.as_tensor\(x\)"),
        (({"a": X, "b": X.numpy()}, Y), r"x must be tensors; got Tensor, ndarray; use torch.as_tensor\(x\)"),
        ((X, {"depth": Y.numpy()}), r"y must be tensors; got ndarray; use torch.as_tensor\(y\)"),
        (({}, Y), "x must be tensors; got nothing"),
    ],
    ids=range(19),
)
def test_what_is_not_data_is_refused_in_three_parts(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        source(data)
    assert all((caught.value.must, caught.value.got, caught.value.remedy))


def test_numpy_arrays_are_refused() -> None:
    for data in ((X.numpy(), Y.numpy()), (X, Y.numpy()), [np.zeros(3), np.zeros(3)]):
        with pytest.raises(InputError):
            source(data)


def test_items_must_be_pairs() -> None:
    class Triples(Rows):
        def __getitem__(self, index: int) -> Any:
            return X[index], X[index], Y[index]

    with pytest.raises(InputError, match="an item must be a pair"):
        source(Triples()).rows(None)


def test_arrays_are_refused_with_a_remedy() -> None:
    for data, which in (((X.numpy(), Y.numpy()), "x"), ((X, Y.numpy()), "y"), ([(X, Y), (X, Y.numpy())], "y")):
        with pytest.raises(InputError, match=rf"{which} must be tensors; got ndarray; use torch.as_tensor\({which}\)"):
            source(data)
    with pytest.raises(InputError, match=r"y must be tensors; got int; use torch.as_tensor\(y\)"):
        source((X, [0] * 10))


def test_a_loaders_own_collate_is_used_for_tensors_too() -> None:
    def doubled(items: list[Any]) -> tuple[Tensor, Tensor]:
        return 2 * torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])

    given = source(DataLoader(TensorDataset(X, Y), batch_size=4, collate_fn=doubled))
    assert given.batch_size == 4
    assert torch.equal(given.rows(None)[0], 2 * X)
    assert torch.equal(given.subset(torch.tensor([3])).rows(None)[0], 2 * X[[3]])


def test_a_loader_of_a_list_of_items() -> None:
    items = list(zip(X, Y, strict=True))
    assert_whole(source(DataLoader(items, batch_size=3)))  # type: ignore[arg-type]
    assert source(DataLoader(items[:2], batch_size=3)).size == 2  # type: ignore[arg-type]


def test_a_loader_that_does_not_batch() -> None:
    for dataset in (Rows(), TensorDataset(X, Y)):
        given = source(DataLoader(dataset, batch_size=None))
        assert given.batch_size is None
        assert_whole(given)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Rows(X[:0], Y[:0]), "data must hold at least one row; got none"),
        (DataLoader(Rows(X[:0], Y[:0]), batch_size=3), "data must hold at least one row; got none"),
        (Stream(), "same number of rows|batches must be alike"),
        (
            [(X, Y), (X[:, :1], Y)],
            "batches must be alike but for their rows; got .*; batch single items by a DataLoader",
        ),
        ([(X, Y), ((X, X), Y)], "batches must be alike"),
        ([(X[0], Y[0, 0]), (X[1], Y[1, 0]), (X[2], Y[2, 0])], "batches must be alike"),
    ],
    ids=range(6),
)
def test_more_that_is_not_data_is_refused_in_three_parts(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        source(data)
    assert all((caught.value.must, caught.value.got, caught.value.remedy))


def test_a_dataset_must_have_a_length() -> None:
    class Endless(Dataset[Any]):
        def __getitem__(self, index: int) -> Any:
            return X[0], Y[0]

    with pytest.raises(InputError, match="a dataset must have a length; got Endless; give it __len__"):
        source(Endless())
