"""The scoreboard of the whole mission: every item of the checklist, where it lives, what shows it, its numbers. Nothing is entered by hand.

    python reproduce/scoreboard.py [--out docs/scoreboard.md]

Items, homes and states come from docs/checklist.md, numbers from the JSON files of reproduce/results and benchmarks/results. An item with
no file behind it stands there as missing, by name.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
HEADER = "| id | what | part | shown by | state |"
FOLDERS = ("reproduce/results", "benchmarks/results")


class Item(NamedTuple):
    id: str
    what: str
    part: str
    paths: tuple[str, ...]
    state: str


class Kept(NamedTuple):
    """A result file."""

    name: str
    state: dict[str, Any]


def items(text: str) -> list[Item]:
    lines = text.splitlines()
    start = lines.index(HEADER) + 2
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        id, what, part, shown, state = (cell.strip() for cell in line.strip()[1:-1].split("|"))
        paths = tuple(name for name in re.findall(r"`([^`]+)`", shown) if "/" in name)
        found.append(Item(id, what, part, paths, state))
    return found


def results(root: Path) -> list[Kept]:
    """Full results only: a quick run shows nothing."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("*.json")):
            try:
                state = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                continue
            if isinstance(state, dict) and isinstance(state.get("rows"), list) and not state.get("quick"):
                found.append(Kept(f"{folder}/{path.name}", state))
    return found


def verdict(row: dict[str, Any]) -> bool | None:
    """What the script that made the row said of it."""
    return next((row[key] for key in ("right", "within", "not_worse") if isinstance(row.get(key), bool)), None)


def number(value: Any, se: Any = None) -> str:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "" if value is None else str(value)
    return f"{value:.4g}" + (f" ± {se:.2g}" if isinstance(se, (int, float)) and se == se else "")


def evidence(id: str, kept: list[Kept]) -> str:
    """For each result file that speaks of the item: how many of its rows are within, of those that have a bound."""
    told = []
    for name, state in kept:
        rows = [row for row in state["rows"] if id in row.get("checklist", ())]
        judged = [v for row in rows if (v := verdict(row)) is not None]
        if rows:
            score = f"{sum(judged)} of {len(judged)} within" if judged else f"{len(rows)} numbers"
            told.append(f"[{Path(name).stem}](../{name}): {score}")
    return "; ".join(told)


def line(item: Item, kept: list[Kept], root: Path) -> tuple[str, str]:
    """A row of the page, and its state."""
    here = [path for path in item.paths if (root / path).exists()]
    state = "done" if item.state == "done" and here else "begun" if here else "missing"
    homes = (
        ", ".join(
            f"[{path}]({path.removeprefix('docs/') if path.startswith('docs/') else f'../{path}'})" for path in here
        )
        or f"**missing**: {', '.join(item.paths)}"
    )
    shown = {"done": "done", "begun": "begun", "missing": "**missing**"}[state]
    return f"| {item.id} | {item.what} | {item.part} | {homes} | {evidence(item.id, kept)} | {shown} |", state


def published(kept: list[Kept]) -> list[str]:
    """Every row that has a published number: published | ours | within?"""
    lines = []
    for name, state in kept:
        rows = [
            row for row in state["rows"] if all(isinstance(row.get(k), (int, float)) for k in ("published", "ours"))
        ]
        if not rows:
            continue
        versions = state.get("versions", {})
        made = f"`{state.get('command', '')}`, commit {str(state.get('commit', ''))[:12]}, torch {versions.get('torch', '?')}"
        lines += ["", f"### {Path(name).stem}", "", f"{made}, {state.get('machine', '')}.", ""]
        lines += ["| row | metric | published | mark | ours | within? |", "|---|---|---|---|---|---|"]
        for row in rows:
            ok = verdict(row)
            cells = [
                str(row.get("row", "")), str(row.get("metric", "")), number(row["published"], row.get("published_se")),
                str(row.get("mark", "")), number(row["ours"], row.get("se")), "–" if ok is None else "yes" if ok else "**no**",
            ]  # fmt: skip
            lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return lines


def page(root: Path = ROOT) -> str:
    listed, kept = items((root / "docs" / "checklist.md").read_text(encoding="utf-8")), results(root)
    rows, states = [], []
    for item in listed:
        text, state = line(item, kept, root)
        rows.append(text)
        states.append((item, state))
    counts = Counter(state for _, state in states)
    missing = [item.id for item, state in states if state == "missing"]
    head = [
        "# Scoreboard",
        "",
        "Made by `python reproduce/scoreboard.py` from docs/checklist.md and the kept results; do not edit. `within` is what the "
        "script that made a number says of it; marks: read (from the source), own (no published number), exact.",
        "",
        f"**{counts['done']} done, {counts['begun']} begun, {counts['missing']} missing** of {len(listed)}."
        + (f" Missing: {', '.join(missing)}." if missing else ""),
        "",
        "| id | what | part | where it lives | numbers | state |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, "", "## Published numbers beside ours", *published(kept)]) + "\n"


def main(arguments: list[str] | None = None) -> str:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "scoreboard.md")
    given = parser.parse_args(arguments)
    text = page()
    given.out.write_text(text, encoding="utf-8")
    return text


if __name__ == "__main__":
    main()
