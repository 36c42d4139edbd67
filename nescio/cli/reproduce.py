"""`nescio reproduce`: the tables and figures of reproduce/ by name, run anew or shown as they were made."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nescio.cli.voice import Voice
from nescio.errors import FileError, InputError


def root() -> Path:
    """The checkout: where we are, above it, or where the package itself lies."""
    here = Path.cwd()
    for place in (here, *here.parents, Path(__file__).resolve().parents[2]):
        if (place / "reproduce" / "evidence.py").is_file():
            return place
    raise FileError(
        "reproductions need the source checkout", f"none above {here}", "clone the repository and call it there"
    )


def scripts(place: Path) -> dict[str, str]:
    """Those that can be run: name -> first line of what they say about themselves."""
    found = {}
    for path in sorted((place / "reproduce").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "__main__" in text and "--quick" in text:
            found[path.stem] = (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
    return found


def results(place: Path) -> dict[str, dict[str, Any]]:
    """table -> what its JSON holds."""
    found = {}
    for path in sorted((place / "reproduce" / "results").glob("*.json")):
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(state, dict) and isinstance(state.get("rows"), list):
            found[path.stem] = state
    return found


def reproduce(voice: Voice, name: str | None, quick: bool, show: bool, more: list[str]) -> int:
    place = root()
    known, made = scripts(place), results(place)
    if name is None:
        voice.say("to run: nescio reproduce NAME [--quick]; what was made: nescio reproduce NAME --show")
        voice.table(("", ""), [(f"  {script}", line) for script, line in known.items()])
        voice.table(("made", "rows", "by"), [(t, str(len(s["rows"])), s.get("command", "")) for t, s in made.items()])
        voice.end({"scripts": known, "results": {t: len(s["rows"]) for t, s in made.items()}})
        return 0
    if name in known and not show:
        command = [sys.executable, str(place / "reproduce" / f"{name}.py"), *(["--quick"] if quick else []), *more]
        return carried_out(command, place)
    if name in made:
        shown(voice, made[name])
        return 0
    near = ", ".join(sorted(made if show else {*known, *made}))
    raise InputError("a table must be made to be shown" if show else "a table must be known", name, f"there are {near}")


def carried_out(command: list[str], place: Path) -> int:
    """The script's own exit code; where it ends by an error of ours, such as data that are not there, one line and 2."""
    held: list[str] = []
    with subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True, errors="replace") as script:
        assert script.stderr is not None
        for line in script.stderr:
            if held or line.startswith(("Traceback (most", "concurrent.futures.process._RemoteTraceback")):
                held.append(line)
            else:
                sys.stderr.write(line)
    kind, _, said = (held[-1] if held else "").partition(": ")
    if kind.startswith("nescio.errors."):
        print(f"nescio: {said.strip()}", file=sys.stderr)
        return 2
    sys.stderr.writelines(held)
    return script.returncode


def shown(voice: Voice, state: dict[str, Any]) -> None:
    rows = [entry(row) for row in state["rows"]]
    voice.table(("row", "metric", "published", "ours", "within?"), rows)
    voice.say(f"made by {state.get('command')} at {state.get('commit', '')[:12]}, seeds {state.get('seeds')}")
    voice.end({"rows": state["rows"]})


def entry(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    published = number(row.get("published"), row.get("published_se"))
    mark = row.get("mark")
    return (
        str(row.get("row", "")),
        str(row.get("metric", "")),
        f"{published} [{mark}]" if published and mark else published,
        number(row.get("ours"), row.get("se")),
        within(row),
    )


def number(value: Any, se: Any) -> str:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "" if value is None else str(value)
    return f"{value:.4g}" + (f" ± {se:.2g}" if isinstance(se, (int, float)) else "")


def within(row: dict[str, Any]) -> str:
    """What the script itself said of the row."""
    for key in ("right", "within", "not_worse"):
        if isinstance(row.get(key), bool):
            return "yes" if row[key] else "NO"
    return "–"
