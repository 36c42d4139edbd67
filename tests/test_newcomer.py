"""The newcomer's path: the demo, the numbers of the README, the code of docs/command-line.md, the reference page."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from commands import call

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    place = tmp_path_factory.mktemp("demo") / "demo"
    done = call("demo", "--quick", "--out", str(place))
    assert done.code == 0, done.err
    return done.out, place


def test_the_demo_fits_predicts_and_reports(shown: tuple[str, Path]) -> None:
    said, place = shown
    for command in ("$ nescio fit concrete", "$ nescio predict", "$ nescio report"):
        assert command in said
    for file in (
        "posterior.safetensors",
        "new.predictions.csv",
        "report.html",
        "figures/intervals.svg",
        "figures/intervals.csv",
    ):
        assert (place / file).stat().st_size > 100, file
    last = (place / "new.predictions.csv").read_text().strip().splitlines()[-1]
    assert last.endswith("true")  # ten times the cement: it does not know


def test_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = call("demo", "--quick", "--out", str(tmp_path / "file"))
    assert done.code == 2 and len(done.err.strip().splitlines()) == 1


def test_the_readme_tells_the_numbers_of_the_demo() -> None:
    """docs/figures/demo.json is the metrics.json of the run whose picture the README shows."""
    text, kept = (ROOT / "README.md").read_text(), json.loads((ROOT / "docs" / "figures" / "demo.json").read_text())
    scores = kept["scores"]
    assert (
        f"{scores['nll']['value']:.2f} ± {scores['nll']['se']:.2f}" in text
        and f"{scores['rmse']['value']:.2f} MPa" in text
    )
    assert f"{scores['coverage']['value']:.1%} ± {scores['coverage']['se']:.1%}" in text
    svg = (ROOT / "docs" / "figures" / "demo.svg").read_text()
    assert f"{kept['held_out_rows']} held-out rows" in svg


@pytest.mark.parametrize("number", [0, 1])
def test_the_code_of_the_command_line_page_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    block = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "command-line.md").read_text(), re.DOTALL)[number]
    names: dict[str, object] = {}
    exec(block, names)
    assert ("mean rank" in capsys.readouterr().out) if number == 0 else len(names["low"]) == 200  # type: ignore[arg-type]


def test_the_messages_of_the_page_are_those_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("rooms,garden,price\n" + "".join(f"{i},{i % 3},{i * i}\n" for i in range(9)))
    page = (ROOT / "docs" / "command-line.md").read_text()
    done = call("fit", str(tmp_path / "t.csv"), "--target", "prise")
    assert done.err.split("t.csv:1: ")[1].strip() in page
    (tmp_path / "nan.csv").write_text("rooms,garden,price\n1,2,3\n2,NaN,4\n")
    done = call("fit", str(tmp_path / "nan.csv"), "--target", "price")
    assert done.err.split("nan.csv:")[1].strip() in page
    done = call("fit", str(tmp_path / "t.csv"), "--target", "price", "--method", "8 * (MPA() >> MCLMC())")
    assert done.err.split("there are")[0].split("nescio: ")[1] in page


def test_the_reference_is_made_from_the_docstrings(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    text = made.page()
    for name in ("### fit", "### MAP", "### compare", "### BayesianRegressor", "## nescio.expressions"):
        assert name in text
