"""Calibration, scores and the report: right numbers, faults that are seen, a page that stands alone and can be read by everyone."""

from __future__ import annotations

import base64
import html.parser
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from chance import assert_law, assert_mean, within
from commands import call
from scipy import stats
from test_cli import table
from torch.distributions import Categorical, Normal

from nescio.errors import InputError, UnsupportedError
from nescio.evaluation import crps, ece, pit, reliability, scores
from nescio.noise import Noise
from nescio.predictive import Drawn
from nescio.report.figures.binomial import binomial_band
from nescio.report.figures.calibration import coverage_data, reliability_data
from nescio.report.figures.importance import importance_data
from nescio.report.figures.parts import parts_data
from nescio.report.figures.selective import selective_data
from nescio.report.words import Mark, covered, found_out, taught, trusted


def gaussians(rows: int, factor: float = 1.0) -> tuple[Drawn, torch.Tensor]:
    """Truths drawn from one of two components of a mixture, which is then stated with its widths times `factor`."""
    noise = Noise(5).at("calibration")
    loc = 4 * torch.stack([noise.at("a").normal(rows, 1), noise.at("b").normal(rows, 1)]).double()  # (draws, points, 1)
    scale = 0.5 + noise.at("scale").uniform(2, rows, 1).double()
    which = noise.at("which").integers(0, 2, rows)
    chosen = torch.arange(rows)
    y = loc[which, chosen] + scale[which, chosen] * noise.at("y").normal(rows, 1)
    return Drawn(Normal(loc, factor * scale)), y


def labels(rows: int, sharper: float = 1.0) -> tuple[Drawn, torch.Tensor]:
    """Classes drawn from the stated probabilities, which are then made sharper."""
    logits = 1.5 * Noise(6).at("logits").normal(1, rows, 3).double()
    u = Noise(6).at("u").uniform(rows, 1).double()
    y = (logits[0].softmax(-1).cumsum(-1) < u).sum(-1).clamp(max=2)
    return Drawn(Categorical(logits=sharper * logits)), y


# ---- scores --------------------------------------------------------------------------------------------------------


def check_crps() -> None:
    """Against the closed form of a Gaussian; each estimate of 1000 samples is unbiased."""
    rows = 400
    noise = Noise(1).at("crps")
    loc, scale, y = noise.at("m").normal(rows, 1), 0.5 + noise.at("s").uniform(rows, 1), noise.at("y").normal(rows, 1)
    z = ((y - loc) / scale).double().numpy()
    exact = scale.numpy() * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    found = crps(Drawn(Normal(loc[None], scale[None])), y).numpy()
    assert_mean((found - exact).ravel(), 0.0)
    assert np.abs(found - exact).max() < 0.25  # eight standard errors of the widest


def check_pit() -> None:
    """Uniform for truths from the predictive itself: DKW."""
    predictive, y = gaussians(4000)
    assert_law(pit(predictive, y).flatten(), lambda u: u)


def check_reliability() -> None:
    """Stated probabilities are true: right minus stated has mean zero, and so has each bin."""
    predictive, y = labels(4000)
    found = predictive.probabilities
    assert found is not None
    best = found.max(-1)
    assert_mean((best.indices == y).double() - best.values, 0.0)
    bins = reliability(predictive, y)
    assert int(bins.count.sum()) == 4000
    z = (bins.right - bins.stated) * (bins.count / (bins.stated * (1 - bins.stated))).sqrt()
    within(z[bins.count > 20])
    assert ece(predictive, y) < 0.1 < ece(labels(4000, sharper=4.0)[0], y)


def check_scores() -> None:
    predictive, y = gaussians(300)
    found = scores(predictive, y)
    error = (predictive.mean - y).square()
    assert found["rmse"]["value"] == pytest.approx(float(error.mean().sqrt()), rel=1e-6)
    assert found["nll"]["se"] == pytest.approx(float(predictive.log_prob(y).std() / 300**0.5), rel=1e-6)
    assert found["rmse"]["se"] == pytest.approx(float(error.std() / 300**0.5 / (2 * error.mean().sqrt())), rel=1e-6)


@pytest.mark.parametrize("check", [check_crps, check_pit, check_reliability, check_scores])
def test_scores(check) -> None:  # type: ignore[no-untyped-def]
    check()


def test_scores_refuse_the_other_kind() -> None:
    predictive, y = gaussians(5)
    with pytest.raises(UnsupportedError, match="classes"):
        reliability(predictive, y)
    with pytest.raises(UnsupportedError, match="real"):
        crps(*labels(5))
    with pytest.raises(InputError, match="shape"):
        pit(predictive, y[:, 0])
    one = scores(*gaussians(1))
    assert one["nll"]["se"] is None and one["rmse"]["se"] is None


# ---- figures and words ---------------------------------------------------------------------------------------------


def check_band() -> None:
    """Exact binomial tails, against scipy's."""
    for n, p in ((10, 0.5), (103, 0.9), (37, 0.02)):
        low, high = (float(bound[0]) * n for bound in binomial_band(n, np.array([p]), 0.05))
        assert stats.binom.cdf(low - 1, n, p) <= 0.025 < stats.binom.cdf(low, n, p)
        assert stats.binom.sf(high, n, p) <= 0.025 < stats.binom.sf(high - 1, n, p)


def check_verdict_on_intervals() -> None:
    """Right widths are called good, narrow ones bad, wide ones too cautious; n = 1000 rows. By their own word the verdicts on
    intervals and on probabilities blame a right model in 5% of all cases each; with this seed they do not."""
    for factor, mark in ((1.0, Mark.GOOD), (0.3, Mark.BAD), (3.0, Mark.FAIR)):
        predictive, y = gaussians(1000, factor)
        numbers = coverage_data(predictive, y)
        at = int(np.argmin(np.abs(numbers["level"] - 0.9)))
        assert covered(float(numbers["held"][at]), 1000).mark is mark
        outside = ((numbers["held"] < numbers["low"]) | (numbers["held"] > numbers["high"])).mean()
        assert outside < 0.5 if factor == 1.0 else outside > 0.5
    assert trusted(reliability_data(*labels(3000))).mark is Mark.GOOD
    for rows, few in ((12, True), (30, True), (60, False), (300, False)):  # 0.9 - 1.96 √(.09 / n) = 0.8 at n = 35
        assert (covered(0.9, rows).mark is Mark.FAIR) == few
        assert covered(0.5, rows).mark is Mark.BAD  # few rows may still convict
    said = trusted(reliability_data(*labels(12)))
    assert said.mark is Mark.FAIR and "Only 12 rows" in said.text
    truth = labels(3000)[1]
    assert trusted(reliability_data(labels(3000, sharper=4.0)[0], truth)).mark is Mark.BAD


def check_parts() -> None:
    """Epistemic is the spread of the means, aleatoric the noise; the ten least known rows are marked."""
    loc = torch.zeros(2, 50, 1)
    loc[0, :10] = 6.0
    numbers = parts_data(Drawn(Normal(loc, torch.full_like(loc, 0.5))))
    assert set(np.flatnonzero(numbers["marked"])) == set(range(10))
    np.testing.assert_allclose(numbers["epistemic"][:10], 3.0)
    np.testing.assert_allclose(numbers["aleatoric"], 0.5)
    assert (
        taught(numbers).mark is Mark.FAIR
        and taught({**numbers, "epistemic": numbers["epistemic"] / 100}).mark is Mark.GOOD
    )


def check_importance() -> None:
    """A column that is used has an importance, one that is not has exactly none."""
    x = Noise(2).at("x").normal(200, 3)

    def predict(z: torch.Tensor) -> Drawn:
        return Drawn(Normal((2 * z[:, :1] + 0.5 * z[:, 1:2])[None], torch.ones(1, len(z), 1)))

    numbers = importance_data(predict, x, 2 * x[:, :1] + 0.5 * x[:, 1:2], {"a": [0], "b": [1], "c": [2]})
    assert numbers["harm"][0] > 3 * numbers["harm"][1] > 0 and numbers["harm"][2] == 0 == numbers["se"][2]


def check_selective() -> None:
    """Where doubt is the error's size, the least doubtful half errs less; where it is not, the verdict says so."""
    loc = torch.linspace(0, 3, 400)[None, :, None]
    y = loc[0] + loc[0] * Noise(3).at("e").normal(400, 1)
    good = selective_data(Drawn(Normal(loc, 0.1 + loc)), y)
    bad = selective_data(Drawn(Normal(loc, 3.1 - loc)), y)
    assert found_out(good).mark is Mark.GOOD and found_out(bad).mark is Mark.BAD
    assert good["risk"][-1] == pytest.approx(good["all"][-1]) and (good["best"] <= good["risk"] + 1e-9).all()


@pytest.mark.parametrize(
    "check", [check_band, check_verdict_on_intervals, check_parts, check_importance, check_selective]
)
def test_figures_and_words(check) -> None:  # type: ignore[no-untyped-def]
    check()


# ---- the page ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["y", "cls"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("page")
    target, other = (request.param, "cls" if request.param == "y" else "y")
    method = "2 * (MAP(epochs=5) >> HMC(draws=20, warmup=5, leapfrog=2))" if target == "y" else "2 * MAP(epochs=5)"
    data = table(place / "t.csv", 60, holes=True)
    if target == "cls":  # names that would break a careless page
        data.write_text(data.read_text().replace("up", "<script>alert(1)</script>").replace("red", "r&d'"))
    arguments = ("--target", target, "--ignore", other, "--net", "mlp(inputs, 4, outputs)", "--test", "0.3")
    assert call("fit", str(data), *arguments, "--method", method, "--out", str(place / "run")).code == 0
    compared = (
        "--method",
        "1 * MAP(epochs=1)",
        "--reference",
        "2 * MAP(epochs=1)",
        "--splits",
        "1",
        "--out",
        str(place / "run"),
    )
    if target == "cls":  # a comparison that was left in the folder is shown
        assert call("compare", str(data), "--target", target, "--ignore", other, *compared).code == 0
    done = call("report", str(place / "run"), "--json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["verdicts"]) == 5
    return place / "run" / "report.html"


class Reader(html.parser.HTMLParser):
    """Which tags there are, with what they load, and every image's text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.images: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.loaded += [value or "" for key, value in attrs if key in ("src", "href", "srcset", "action")]
        if tag == "img":
            self.images.append(given)


def test_the_page_stands_alone(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert "script" not in reader.tags and "<script>alert" not in text
    assert all(value.startswith("data:") for value in reader.loaded)
    assert "http://" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", text) and "default-src 'none'" in text
    assert len(reader.images) >= 5 and all(len(image["alt"] or "") > 30 for image in reader.images)
    assert ("Methods compared" in text and "own ceiling" in text) == (page.parent / "comparison.json").exists()
    assert 'lang="en"' in text and "width=device-width" in text and "@media print" in text


def test_every_figure_has_its_numbers(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    figures = page.parent / "figures"
    for svg in figures.glob("*.svg"):
        values = (figures / f"{svg.stem}.csv").read_bytes()
        assert values.count(b"\n") > 1 and base64.b64encode(values).decode() in text
    assert {p.stem for p in figures.glob("*.svg")} >= {"parts", "importance", "selective", "checks"}


def test_colours_can_be_read(page: Path) -> None:
    """Contrast of text against its ground at least 4.5 : 1 (WCAG AA)."""
    style = page.read_text(encoding="utf-8").split("<style>")[1].split("</style>")[0]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", style))

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for ink in ("ink", "soft", "blue", "good", "fair", "bad"):
        for paper in ("paper", "shade"):
            bright, dark = sorted((luminance(colours[paper]), luminance(colours[ink])), reverse=True)
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)


def chromium() -> str:
    found = os.environ.get("NESCIO_CHROMIUM") or next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
    )
    if not found:
        pytest.skip("no Chromium here (set NESCIO_CHROMIUM)")
    return found


def test_a_browser_shows_it(page: Path, tmp_path: Path) -> None:
    """At phone width nothing is wider than the screen, no image is broken, and nothing is asked of the network."""
    quiet = (
        "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-dev-shm-usage --no-first-run"
    )
    probe = page.with_name("probe.html")
    inner = page.read_text(encoding="utf-8").replace(
        "default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'"
    )
    script = (
        "<script>addEventListener('load', () => { const images = [...document.images];"
        "document.title = JSON.stringify({wide: document.documentElement.scrollWidth, screen: innerWidth,"
        "broken: images.filter(i => !i.naturalWidth).length, images: images.length,"
        "loaded: performance.getEntriesByType('resource').filter(r => !r.name.startsWith('data:')).length}) })</script>"
    )
    probe.write_text(inner.replace("</body>", script + "</body>"), encoding="utf-8")
    command = [
        chromium(),
        *quiet.split(),
        f"--user-data-dir={tmp_path}",
        "--window-size=500,900",
        "--dump-dom",
        probe.as_uri(),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    found = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", shown, re.DOTALL)[1]))  # type: ignore[index]
    assert found["images"] >= 5 and found["broken"] == 0 and found["loaded"] == 0
    assert found["wide"] <= found["screen"]
