"""The documents are true: their code runs, their numbers are those of the kept results, their links lead somewhere."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from chance import assert_law
from check_method import check_method
from scipy import stats

from nescio import Model, fit, infer
from nescio.diagnose import problems
from nescio.infer import MAP, Method
from nescio.infer.method import MOST_DRAWS
from nescio.infer.sampler import Sampler
from nescio.laws import HalfCauchy, Learned
from nescio.laws.prior import Prior
from nescio.laws.site import Site
from nescio.nets import mlp
from nescio.noise import Noise

ROOT = Path(__file__).resolve().parent.parent
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


def test_the_readme_snippet_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (snippet,) = blocks(ROOT / "README.md")
    names: dict[str, object] = {}
    exec(snippet, names)
    assert (tmp_path / "sine.safetensors").exists()
    inside, outside = names["predictive"].epistemic[:, 0]  # type: ignore[attr-defined]
    assert outside > 10 * inside  # it knows where it does not know


PRELUDE = """
from __future__ import annotations
from dataclasses import dataclass, replace
from typing import NamedTuple, final
import torch
from nescio.infer.begin import from_network, minibatch
from nescio.infer.iterative import Iterative
from nescio.posterior import Draws

class State(NamedTuple):
    u: torch.Tensor
    statistics: dict

class Info(NamedTuple):
    value: torch.Tensor
"""


def test_the_method_of_the_docs_passes_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    (snippet,) = blocks(ROOT / "docs" / "add-a-method.md")
    module = ModuleType("ascent")
    monkeypatch.setitem(sys.modules, "ascent", module)
    exec(PRELUDE + snippet, module.__dict__)
    check_method(module.Ascent(epochs=2))


OWN = """
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
import torch
from torch import distributions as td
from torch.distributions.transforms import AffineTransform, SigmoidTransform
from nescio.laws import Elementwise, Number, positive, real
from nescio.likelihoods import Likelihood
"""


def test_the_law_and_likelihood_of_the_docs_work(monkeypatch: pytest.MonkeyPatch) -> None:
    (snippet,) = blocks(ROOT / "docs" / "priors.md")
    module = ModuleType("own")
    monkeypatch.setitem(sys.modules, "own", module)
    exec(OWN + snippet, module.__dict__)
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    model = Model(mlp(2, 4, 1), module.Logistic(0.0, HalfCauchy(1.0).per("layer")), module.Robust(Learned(1.0)))
    posterior = fit(model, (x, x[:, :1]), 2 * MAP(epochs=5))
    assert posterior.predict(x).mean.shape == (40, 1)
    drawn = Prior(module.Logistic(1.0, 2.0), [Site("w", (400_000,))], {}).draw(Noise(0, (), dtype=torch.float64))
    assert_law(drawn, stats.logistic(1.0, 2.0).cdf)


def test_the_diagnostics_of_the_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for snippet in blocks(ROOT / "docs" / "diagnostics.md"):
        exec(snippet, names)
    assert (tmp_path / "trace.svg").exists()
    assert names["verdict"]["ebfmi"] > 0 and names["verdict"]["divergences"] == len(names["where"])
    assert set(names["posterior"].trace) == {"energy", "acceptance", "divergent", "leapfrogs"}
    assert names["tree"].posterior["0.weight"].shape == (4, 100, 3, 1)


def test_the_samplers_of_the_docs_run() -> None:
    names: dict[str, Any] = {}
    text = (ROOT / "docs" / "sampling.md").read_text()
    for snippet in blocks(ROOT / "docs" / "sampling.md"):
        exec(snippet, names)
    assert names["reference"].theta.shape[:2] == names["posterior"].theta.shape[:2] == (4, 100)
    truth = json.loads((ROOT / "reproduce" / "results" / "truth.json").read_text())["rows"]
    assert f"<!-- truth -->{sum(row['right'] for row in truth)} of {len(truth)}<!-- end -->" in text
    scores = json.loads((ROOT / "reproduce" / "results" / "uci_microcanonical.json").read_text())["rows"]
    within = [row["ours"] for row in scores if row["metric"] == "rhat within chains"]
    assert len(within) == 9 and f"<!-- within -->{min(within):.1f} to {max(within):.1f}<!-- end -->" in text
    for sampler in (each for each in vars(infer).values() if isinstance(each, type) and issubclass(each, Sampler)):
        assert sampler.__name__ == "Sampler" or re.search(rf"`{sampler.__name__}\(", text), sampler


def test_the_thresholds_of_the_docs_are_those_of_the_verdict() -> None:
    text = (ROOT / "docs" / "diagnostics.md").read_text()
    assert f"| R-hat | below {problems.RHAT} |" in text
    assert text.count(f"ESS | {problems.ESS} or more |") == 2
    assert f"| E-BFMI | {problems.EBFMI} or more" in text
    assert f"long chains by {MOST_DRAWS} draws" in text


def test_the_readmes_table_is_the_kept_one() -> None:
    rows = json.loads((ROOT / "reproduce" / "results" / "uci_ensembles.json").read_text())["rows"]
    kept = {row["row"].split(",")[0]: row for row in rows if row["metric"] == "nll"}
    text = (ROOT / "README.md").read_text().replace("−", "-")
    names = [cell.strip() for cell in re.search(r"\| \| (boston.*?) \|\n", text).group(1).split("|")]  # type: ignore[union-attr]
    for label, value, error in (("published", "published", "published_se"), ("`5 * MAP()`", "ours", "se")):
        line = re.search(rf"\| {re.escape(label)} \| (.*?) \|\n", text).group(1)  # type: ignore[union-attr]
        for name, cell in zip(names, line.split("|"), strict=True):
            shown, spread = (float(number) for number in re.findall(r"-?\d*\.\d+", cell))
            assert abs(shown - kept[name][value]) <= 0.0051 and abs(spread - kept[name][error]) <= 0.0051, (label, name)
            assert ("**" in cell) is (label != "published" and kept[name]["better"])


def test_the_readmes_microcanonical_row_is_the_kept_one() -> None:
    """Sets of which all splits are done are shown, others not; bold where below the published ensembles."""
    results = ROOT / "reproduce" / "results"
    rows = json.loads((results / "uci_microcanonical.json").read_text())["rows"]
    kept = {row["row"].split(",")[0]: row for row in rows if row["metric"] == "nll"}
    published = json.loads((results / "uci_ensembles.json").read_text())["rows"]
    bar = {row["row"].split(",")[0]: row["published"] for row in published if row["metric"] == "nll"}
    text = (ROOT / "README.md").read_text().replace("−", "-")
    names = [cell.strip() for cell in re.search(r"\| \| (boston.*?) \|\n", text).group(1).split("|")]  # type: ignore[union-attr]
    line = re.search(r"\| `8 \* \(MAP\(\) >> MCLMC\(\)\)` \| (.*?) \|\n", text).group(1)  # type: ignore[union-attr]
    for name, cell in zip(names, line.split("|"), strict=True):
        numbers = [float(number) for number in re.findall(r"-?\d*\.\d+", cell)]
        assert bool(numbers) is (name in kept and kept[name]["n"] == (5 if name == "protein" else 20)), name
        if numbers:
            assert abs(numbers[0] - kept[name]["ours"]) <= 0.0051 and abs(numbers[1] - kept[name]["se"]) <= 0.0051, name
            assert ("**" in cell) is (kept[name]["ours"] < bar[name])


def test_the_readmes_sentence_about_its_table_is_true() -> None:
    """Wins, levels and losses by the kept verdicts, R-hat by the kept scores; bold cells have a lower mean than published."""
    results = ROOT / "reproduce" / "results"
    text = " ".join((ROOT / "README.md").read_text().split())
    kept = {
        name: [
            row["beside"]
            for row in json.loads((results / f"{name}.json").read_text())["rows"]
            if row["metric"] == "nll"
        ]
        for name in ("uci_microcanonical", "uci_microcanonical_gap")
    }
    whole, gap = kept.values()
    others = ("deep ensembles", "ours, 5 * MAP()")
    assert len(whole) == 9 and all(beside[label]["verdict"] == "better" for beside in whole for label in others)
    assert not any(beside[label]["censored"] for beside in whole for label in others)
    assert "lower than that of `5 * MAP()` and of the published ensembles on all nine sets, by more than two" in text
    counts = Counter(beside["ours, 5 * MAP()"]["verdict"] for beside in gap)
    assert counts == {"better": 3, "level": 6} and "that of `5 * MAP()` on three sets and level on six" in text
    lines = (results / "uci_microcanonical.scores.jsonl").read_text().splitlines()
    worst = [json.loads(line)["rhat"] for line in lines]
    assert f"R-hat {min(worst):.1f} to {max(worst):.1f}, in the kept scores" in text


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize(
    "name",
    [
        "architecture.md",
        "gotchas.md",
        "add-a-method.md",
        "choose-a-method.md",
        "priors.md",
        "diagnostics.md",
        "sampling.md",
    ],
)
def test_files_named_in_the_docs_exist(name: str) -> None:
    text = (ROOT / "docs" / name).read_text()
    for path in re.findall(r"`((?:tests|nescio|examples|reproduce|docs)/[\w/.-]+\.(?:py|md))`", text):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:laws|likelihoods|infer|posterior|store|data)/\w+\.py)`", text):
        assert (ROOT / "nescio" / path).exists(), path


def test_the_readme_picture_is_the_demos() -> None:
    assert (ROOT / "docs" / "figures" / "gap.svg").read_text().count("<title") == 1


def test_the_measured_tables_are_those_of_the_kept_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    monkeypatch.delitem(sys.modules, "measured_uci", raising=False)
    spec = importlib.util.spec_from_file_location("measured", ROOT / "docs" / "measured.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    text = made.PAGE.read_text()
    assert made.rewritten(text) == text, "run python docs/measured.py"
    assert "| `MCLMC` | 0.693 |" in text
    for old, new in ((" †", ""), ("| PBP | better 9", "| PBP | better 8"), ("| 0.987 |", "| 0.997 |")):
        assert old in text and made.rewritten(text.replace(old, new)) == text  # what was changed by hand is noticed


def test_the_ceiling_and_what_is_censored_stand_in_the_guide() -> None:
    """Halves of HMC before the lower bar, both before every method; a mark on each censored number, and what it means."""
    text = (ROOT / "docs" / "choose-a-method.md").read_text()
    text = text[text.index("<!-- measured") :]
    names = (
        "HMC, one half against the other",
        "HMC, one chain against the others",
        "`5 * MAP()`",
        "`SGHMC`",
        "`MCLMC`",
    )
    order = [text.index(f"| {name} |") for name in names]
    assert order == sorted(order)
    results = ROOT / "reproduce" / "results"
    dropout = json.loads((results / "uci_dropout.json").read_text())["rows"]
    own = [row for row in dropout if row["metric"] == "nll"]
    published = "MC dropout, 4000 epochs"
    beside = {
        row["row"].split(",")[0]: row["beside"][published]
        for row in json.loads((results / "uci_microcanonical.json").read_text())["rows"]
        if row["metric"] == "nll"
    }
    for name in ("energy", "naval", "yacht"):
        assert beside[name]["censored"] and next(row for row in own if row["row"].startswith(name))["censored"]
    marked = sum(row["censored"] for row in own) + sum(cell["censored"] for cell in beside.values())
    assert text.count(" † |") == marked == 9 and text.count("† censored: in more than half of the splits") == 2
    for metric in ("NLL", "RMSE"):
        head = f"| {metric} | `8 * (MAP() >> MCLMC())` | `5 * MAP()` | PBP | MC dropout, 400 epochs | {published} |"
        assert head in text
    assert "| gap | NLL, `8 * (MAP() >> MCLMC())` | NLL, `5 * MAP()` |" in text


def test_the_methods_to_choose_from_exist() -> None:
    """Every expression in the guide that makes a method or a family, as it stands; `...` is left to the reader."""
    names: dict[str, object] = {}
    rooms = ("laws", "infer", "infer.families", "infer.curvature")
    exec("\n".join(f"from nescio.{room} import *" for room in rooms), names)
    text = (ROOT / "docs" / "choose-a-method.md").read_text()
    found = [code for code in re.findall(r"`([^`]+)`", text) if re.search(r"[A-Z]\w*\(", code) and "..." not in code]
    exec(f"made = [{', '.join(code for code in found if 'around' not in code)}]", names)
    made = names["made"]
    assert isinstance(made, list) and len(made) >= 15 and sum(isinstance(x, Method) for x in made) >= 14
