"""How commands speak: sentences and tables for people, or one JSON object for programs, never both."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text


@final
class Voice:
    """`json`: stdout gets one JSON object at the end; what would have been said is in it under "notes"."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.notes: list[str] = []
        self.console = Console(soft_wrap=True)

    def say(self, text: str) -> None:
        self.notes.append(text)
        if not self.as_json:
            self.console.print(Text(text))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if self.as_json:
            return
        table = Table(*map(escape, head), box=None, pad_edge=False, show_header=any(head))
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        (Console() if self.console.is_terminal else Console(width=1000)).print(table)

    def end(self, result: dict[str, Any]) -> None:
        if self.as_json:
            sys.stdout.write(json.dumps({**result, "notes": self.notes}, ensure_ascii=False) + "\n")


def score(entry: dict[str, Any], name: str) -> str:
    """A score with its standard error, as a person reads it."""
    value, se = entry["value"], entry["se"]
    if name in ("coverage", "accuracy"):
        return f"{value:.1%}" + ("" if se is None else f" ± {se:.1%}")
    return f"{value:.3g}" + ("" if se is None else f" ± {se:.2g}")
