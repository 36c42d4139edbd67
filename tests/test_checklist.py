"""docs/checklist.md is complete and honest: every item of the mission once, nothing `done` without a file behind it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "checklist.md").read_text(encoding="utf-8")

ITEMS = {"000": 37, "001": 16, "002": 28, "003": 18, "004": 6}  # source document -> number of items
IDS = [f"{document}-{n}" for document, count in ITEMS.items() for n in range(1, count + 1)]
PARTS = {
    *("1 core", "2 sampling", "3 variational", "4 Laplace"),
    *("5 generative", "6 at work", "7 compression", "8 product"),
}
DRAWINGS = {  # source document -> its items that ask for a figure
    "000": (1, 6, 10, 11, 21, 22, 26, 27, 28, 32, 33, 34, 35, 36),
    "001": (9, 11, 14, 15),
    "002": (1, 3, 5, 8, 9, 10, 12, 15, 18, 24, 27),
    "003": (4, 5, 9, 12, 14, 16),
    "004": (4,),
}
FIGURES = [f"{document}-{n}" for document, numbers in DRAWINGS.items() for n in numbers]
MAIN = ["id", "what", "part", "shown by", "state"]
DRAWN = ["figure id", "what must be visible", "part", "where"]


def table(text: str, header: list[str]) -> list[list[str]]:
    """The rows of the one Markdown table with this header."""
    lines = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in table_lines(text, header)]
    return lines[2:]  # after the header and the rule


def table_lines(text: str, header: list[str]) -> list[str]:
    lines = text.splitlines()
    start = lines.index("| " + " | ".join(header) + " |")
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return lines[start:end]


def paths(cell: str) -> list[str]:
    """The file paths a cell names in backticks, without those it borrows from another part."""
    return [name for name in re.findall(r"`([^`]+)`(?! \(part \d\))", cell) if "/" in name]


def faults(text: str) -> list[str]:
    """Everything that is wrong with the checklist, in words."""
    found = []
    rows, figures = table(text, MAIN), table(text, DRAWN)
    found += [f"wrong number of cells: {row}" for row in rows if len(row) != len(MAIN)]
    found += [f"wrong number of cells: {row}" for row in figures if len(row) != len(DRAWN)]
    if found:
        return found
    counts = Counter(row[0] for row in rows)
    found += [f"{id} occurs {counts[id]} times" for id in IDS if counts[id] != 1]
    found += [f"{id} is no item" for id in counts if id not in IDS]
    for id, what, part, shown, state in rows:
        if not what:
            found.append(f"{id}: nothing said")
        if part not in PARTS:
            found.append(f"{id}: part {part!r}")
        if state not in {"planned", "done"}:
            found.append(f"{id}: state {state!r}")
        if not paths(shown):
            found.append(f"{id}: no path")
        if state == "done" and not any((ROOT / path).is_file() for path in paths(shown)):
            found.append(f"{id}: done without a file")
    drawn = Counter(id for row in figures for id in row[0].split(", "))
    found += [f"figure {id} occurs {drawn[id]} times" for id in FIGURES if drawn[id] != 1]
    found += [f"figure {id} is not asked for" for id in drawn if id not in FIGURES and id != "002"]
    for ids, visible, part, where in figures:
        if not visible or part not in PARTS or not paths(where):
            found.append(f"figure {ids}: without words, part or home")
    return found


def test_number_of_items() -> None:
    assert len(IDS) == 105
    assert len(table(TEXT, MAIN)) == 105


def test_checklist_has_no_faults() -> None:
    assert faults(TEXT) == []


ROW = "| 004-1 | a thing | 3 variational | `tests/test_checklist.py` | done |"


def planted(row: str) -> str:
    """The checklist with its row 004-1 replaced."""
    text, replaced = re.subn(r"^\| 004-1 \|.*$", lambda _: row, TEXT, flags=re.MULTILINE)
    assert replaced == 1
    return text


def test_a_done_row_with_a_file_passes() -> None:
    assert faults(planted(ROW)) == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (ROW.replace("004-1", "004-2"), "004-2 occurs 2 times"),
        (ROW.replace("004-1", "004-7"), "004-7 is no item"),
        (ROW.replace("3 variational", "9 more"), "004-1: part '9 more'"),
        (ROW.replace("done", "perhaps"), "004-1: state 'perhaps'"),
        (ROW.replace("test_checklist", "test_absent"), "004-1: done without a file"),
        (ROW.replace("`", ""), "004-1: no path"),
        (ROW.replace("list.py`", "list.py` (part 2)"), "004-1: done without a file"),
    ],
)
def test_planted_faults_are_found(row: str, fault: str) -> None:
    assert fault in faults(planted(row))


def test_a_figure_without_a_home_is_found() -> None:
    text, replaced = re.subn(r"^(\| 004-4 \| LeNet error .*\|)[^|]*\|$", r"\1 |", TEXT, flags=re.MULTILINE)
    assert replaced == 1
    assert "figure 004-4: without words, part or home" in faults(text)
