"""Writes the API reference from the docstrings: `python docs/reference.py OUT.md`. One section a room, one entry a public name."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

ROOMS = (
    *(
        "nescio",
        "nescio.infer",
        "nescio.laws",
        "nescio.likelihoods",
        "nescio.families",
        "nescio.posterior",
        "nescio.evaluation",
    ),
    *(
        "nescio.comparison",
        "nescio.runs",
        "nescio.expressions",
        "nescio.data",
        "nescio.nets",
        "nescio.report",
        "nescio.sklearn",
    ),
    *("nescio.diagnose", "nescio.linalg"),
)


def entry(name: str, value: object) -> list[str]:
    kind = "class" if inspect.isclass(value) else "function"
    try:
        text = str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        text = ""
    signature = " ".join(text.split())
    lines = [
        f"### {name}",
        "",
        f"`{kind} {name}{signature if len(signature) < 400 else '(...)'}`",
        "",
        inspect.getdoc(value) or "",
        "",
    ]
    if inspect.isclass(value):
        for label, member in vars(value).items():
            said = inspect.getdoc(member) if callable(member) or isinstance(member, property) else None
            if not label.startswith("_") and said:
                lines.append(f"- `{label}`: {said.splitlines()[0]}")
        lines.append("")
    return lines


def page() -> str:
    lines = ["# API reference", "", "Made from the docstrings.", ""]
    for room in ROOMS:
        module = importlib.import_module(room)
        lines += [f"## {room}", "", (module.__doc__ or "").strip().split("\n\n")[0], ""]
        for name in sorted(getattr(module, "__all__", ()), key=str.lower):
            value = getattr(module, name)
            if callable(value) and not name.startswith("_"):
                lines += entry(name, value)
    return "\n".join(lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
