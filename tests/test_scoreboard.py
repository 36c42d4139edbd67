"""The scoreboard is made from the checklist and the kept results, over all items, and names what is missing."""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def scoreboard() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scoreboard", ROOT / "reproduce" / "scoreboard.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_every_item_is_there(scoreboard: ModuleType, tmp_path: Path) -> None:
    text = scoreboard.main(["--out", str(tmp_path / "s.md")])
    listed = scoreboard.items((ROOT / "docs" / "checklist.md").read_text())
    assert len(listed) == 105 and all(f"| {item.id} |" in text for item in listed)
    assert "uci_ensembles" in text and "2.41 ± 0.056" in text and "yes" in text
    assert (ROOT / "docs" / "scoreboard.md").read_text() == text, "run make scoreboard"


def test_what_is_missing_or_wrong_is_said(scoreboard: ModuleType, tmp_path: Path) -> None:
    """A done item without its file is missing, a number out of bounds is not within, a quick result counts for nothing."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "reproduce" / "results").mkdir(parents=True)
    (tmp_path / "reproduce" / "here.py").write_text("")
    rows = [
        "| a | thing | 1 core | `reproduce/here.py` | done |",
        "| b | other | 1 core | `reproduce/gone.py` | done |",
    ]
    rows.append("| c | third | 1 core | `reproduce/here.py` | planned |")
    (tmp_path / "docs" / "checklist.md").write_text("\n".join([scoreboard.HEADER, "|---|", *rows, ""]))
    row = {"row": "r", "metric": "m", "published": 1.0, "mark": "read", "checklist": ["a"]}
    kept = {"rows": [{**row, "ours": 1.1, "right": True}, {**row, "ours": 9.0, "right": False}], "quick": False}
    (tmp_path / "reproduce" / "results" / "t.json").write_text(json.dumps(kept))
    (tmp_path / "reproduce" / "results" / "t.quick.json").write_text(json.dumps({**kept, "quick": True}))
    text = scoreboard.page(tmp_path)
    assert "**1 done, 1 begun, 1 missing** of 3. Missing: b." in text and "**missing**: reproduce/gone.py" in text
    assert "1 of 2 within" in text and text.count("of 2 within") == 1 and "**no**" in text


def test_kept_results_are_strict_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NaN is no JSON: browsers and jq refuse the whole file. What is not finite is null."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    monkeypatch.syspath_prepend(str(ROOT / "reproduce"))
    evidence = importlib.import_module("evidence")
    rows = [{"ours": float("nan"), "each": (1.0, float("inf")), "n": 3}]
    path = evidence.write("none", "", rows, [0], True, tmp_path, {"commit": "", "versions": {}})
    kept = json.loads(path.read_text(), parse_constant=refuse)["rows"]
    assert kept == [{"ours": None, "each": [1.0, None], "n": 3}]
    found = [*ROOT.glob("reproduce/results/*.json"), *ROOT.glob("benchmarks/results/*.json")]
    assert found and all(json.loads(path.read_text(), parse_constant=refuse) for path in found)
