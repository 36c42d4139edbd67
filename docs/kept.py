"""What the kept results say, as Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "reproduce" / "results"
Entries = dict[tuple[str, str], dict[str, Any]]  # (row, metric) -> entry


def kept(name: str) -> Entries:
    rows = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return {(row["row"], row["metric"]): row for row in rows}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def number(x: float | None, digits: int | None = None) -> str:
    """Three figures, or so many after the point."""
    if x is None:
        return ""
    return (f"{x:.{digits}f}" if digits is not None else f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}").replace("-", "−")


def with_error(row: dict[str, Any], digits: int) -> str:
    return number(row["ours"], digits) + (f" ± {number(row['se'], digits)}" if row.get("se") is not None else "")


def expectations(name: str) -> str:
    """What a script expected, what came out, and whether the two agree; bounds were written down before."""
    rows = []
    for row in kept(name).values():
        if row.get("right") is not None:
            low, high = row["bounds"]
            bound = f"{number(low)} or more" if high is None else f"at most {number(high)}"
            bound = bound if low is None or high is None else f"{number(low)} to {number(high)}"
            rows.append((row["row"], row["metric"], number(row["ours"]), bound, "yes" if row["right"] else "**no**"))
    return table(("", "what", "found", "expected", "as expected"), rows)


def picture(name: str, alt: str) -> str:
    """Once it has been drawn."""
    return f"\n\n![{alt}](figures/{name}.svg)" if (ROOT / "docs" / "figures" / f"{name}.svg").exists() else ""
