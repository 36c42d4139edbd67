"""The command line as a user meets it: exit codes, one-line errors, speed of --help, fit, predict, resume, rerun."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from commands import call

from nescio.cli.fit import cleared
from nescio.cli.named import wished
from nescio.data import Entry
from nescio.errors import InputError
from nescio.infer import Progress
from nescio.runs import Wishes, open_run, read_given
from nescio.version import __version__

NESCIO = [sys.executable, "-m", "nescio.cli.main"]
FAST = "2 * MAP(epochs=3)"


def table(path: Path, rows: int = 60, holes: bool = False) -> Path:
    """Numbers, a category, and (where asked for) empty cells; y = 3 a + 2 [kind = red] + noise, cls = sign of a."""
    rng = np.random.default_rng(0)
    a, noise = rng.normal(size=rows), rng.normal(size=rows)
    kind = rng.choice(["red", "blue"], rows)
    lines = ["a,kind,same,y,cls"]
    for i in range(rows):
        cell = "" if holes and i % 7 == 0 else f"{a[i]:.4f}"
        lines.append(
            f"{cell},{kind[i]},5,{3 * a[i] + 2 * (kind[i] == 'red') + 0.1 * noise[i]:.4f},{'up' if a[i] > 0 else 'down'}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fitted")
    arguments = ("--target", "y", "--ignore", "cls", "--method", FAST, "--out", str(place / "run"), "--json")
    done = call("fit", str(table(place / "t.csv", holes=True)), *arguments)
    assert done.code == 0, done.err
    (place / "said.json").write_text(done.out)
    return place


@pytest.fixture(scope="module", params=["Categorical()", "Bernoulli()"])
def classified(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("classified")
    arguments = (
        "--likelihood",
        request.param,
        "--target",
        "cls",
        "--method",
        "2 * MAP(epochs=30)",
        "--out",
        str(place / "run"),
        "--test",
        "0.3",
    )
    done = call("fit", str(table(place / "t.csv", 120)), *arguments)
    assert done.code == 0, done.err
    return place


# ---- the door itself -----------------------------------------------------------------------------------------------


def test_help_is_fast() -> None:
    """At most 0.3 s of processor time on an idle machine; allowed thrice that here, where two workers share two cores."""
    fastest = 10.0
    for _ in range(3):
        before = os.times().children_user + os.times().children_system
        done = subprocess.run([*NESCIO, "--help"], capture_output=True, text=True)
        fastest = min(fastest, os.times().children_user + os.times().children_system - before)
    assert done.returncode == 0 and "predict" in done.stdout
    assert fastest < 0.9


def test_help_does_not_import_torch() -> None:
    code = "import sys, nescio.cli.main; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_an_unknown_command_is_exit_code_2() -> None:
    done = call("frobnicate")
    assert done.code == 2 and "Traceback" not in done.err


WRONG = {
    "no such file": (["fit", "nope.csv", "--target", "y"], "bundled are concrete"),
    "wrong column": (["fit", "{t}", "--target", "z"], "choose of a, kind, same, y, cls"),
    "no target": (["fit", "{t}"], "--target COLUMN"),
    "wrong method": (["fit", "{t}", "--target", "y", "--method", "8 * (MPA() >> MCLMC())"], "did you mean MAP"),
    "wrong prior": (["fit", "{t}", "--target", "y", "--prior", "Normal(0, HalfCauchy(1.).per('inputs'))"], "column"),
    "wrong net": (["fit", "{t}", "--target", "y", "--net", "mlp(inputs, outputs, 0)"], "column 1 of"),
    "too wide a net": (["fit", "{t}", "--target", "y", "--net", "mlp(inputs, 5, 7)"], "change the network"),
    "classes of reals": (["fit", "{t}", "--target", "y", "--likelihood", "Categorical()"], "a numeric target"),
    "missing targets": (["fit", "{hole}", "--target", "a"], "every row must have its target"),
    "constant target": (["fit", "{t}", "--target", "same"], "must vary"),
    "test of everything": (["fit", "{t}", "--target", "y", "--test", "1.5"], "[0, 1)"),
    "both": (["fit", "{t}", "--resume", "x"], "leave DATA out"),
    "nothing": (["fit"], "nescio fit DATA"),
    "no run": (["predict", "nowhere", "{t}"], "nescio fit"),
    "semicolons": (["fit", "{semicolons}", "--target", "b"], "by commas, not semicolons"),
    "prices in dollars": (["fit", "{dollars}", "--target", "b"], "write numbers plainly"),
    "no such device": (["fit", "{t}", "--target", "y", "--device", "gpu"], "use cpu"),
    "a name too long": (["fit", f"{'a' * 5000}.csv", "--target", "y"], "File name too long for aaa"),
    "a folder too long": (["report", "a" * 5000], "File name too long for aaa"),
    "no entry": (["methods", "MPA"], "there are methods"),
    "no data set": (["data", "add", "x.npz"], "mnist.npz"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_one_line_and_exit_code_2(name: str, tmp_path: Path) -> None:
    arguments, said = WRONG[name]
    files = {"t": table(tmp_path / "t.csv"), "hole": table(tmp_path / "hole.csv", holes=True)}
    files["semicolons"], files["dollars"] = tmp_path / "s.csv", tmp_path / "d.csv"
    files["semicolons"].write_text("a;b\n" + "".join(f"{i};1,{i}\n" for i in range(30)))
    files["dollars"].write_text("a,b\n" + "".join(f"{i},${i}\n" for i in range(30)))
    out = ["--out", str(tmp_path / "run")] if arguments[0] == "fit" and "--resume" not in arguments else []
    done = call(*(a.format(**files) if "{" in a else a for a in arguments), *out)
    assert done.code == 2 and said in done.err, done
    assert "Traceback" not in done.err and len(done.err.strip().splitlines()) == 1 and not done.out
    assert len(done.err) < 2000 and not (tmp_path / "run").exists()


def test_a_prediction_file_needs_a_name_that_fits(fitted: Path, tmp_path: Path) -> None:
    out = str(tmp_path / f"{'a' * 300}.csv")
    done = call("predict", str(fitted / "run"), str(table(tmp_path / "new.csv")), "--out", out)
    assert done.code == 2 and "must be writable; got File name too long" in done.err and "Traceback" not in done.err


# ---- fit -------------------------------------------------------------------------------------------------------------


def test_what_was_done_is_said(fitted: Path) -> None:
    said = json.loads((fitted / "said.json").read_text())
    notes = " ".join(said["notes"])
    for part in (
        "empty cells = training mean",
        "one-hot over 2 categories",
        "left out, constant",
        "6 more are held out",
    ):
        assert part in notes
    assert (
        "Gaussian(HalfNormal(1.0)) (a numeric target and only 54 rows" in notes
        and "choose another with --likelihood" in notes
    )
    assert set(said["scores"]) == {"nll", "rmse", "crps", "coverage"} and said["held_out_rows"] == 6


def test_the_folder_describes_itself(fitted: Path) -> None:
    run = open_run(fitted / "run")
    assert (
        run.config.method == FAST and run.config.net == "mlp(inputs, 16, 16, outputs, activation=Tanh)" and run.finished
    )
    assert json.loads((fitted / "run" / "environment.json").read_text())["torch"]
    assert run.posterior().info["seed"] == 0
    assert not list(fitted.glob("run/fit"))


def test_a_default_is_chosen_by_size_and_said(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("nescio.cli.fit.go", lambda run, *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        done = call("fit", str(table(tmp_path / "t.csv")), "--target", "y", "--out", str(tmp_path / "run"))
    assert done.code == 130 and "--resume" in done.err and len(done.err.splitlines()) == 1
    assert "8 * (MAP(" in done.out and "small enough for samplers" in done.out


def test_what_may_not_be_meant_is_asked(tmp_path: Path) -> None:
    """Two whole numbers as a target, a category for each row; and a method that does not go leaves no folder behind."""
    path, out = tmp_path / "t.csv", str(tmp_path / "run")
    path.write_text("id,a,yes\n" + "".join(f"r{i},{i * 7 % 11},{i % 2}\n" for i in range(40)))
    arguments = ("fit", str(path), "--target", "yes", "--out", out, "--method")
    done = call(*arguments, 'MAP(epochs=1).on("head.*")')
    assert done.code == 2 and "a pattern must match a name" in done.err and not Path(out).exists()
    done = call(*arguments, "MAP(epochs=1)")
    assert done.code == 0, done.err
    assert "yes takes only 2 whole numbers: if they are classes, say so with --classes" in done.out
    assert "column id has 40 categories in 40 rows: if it only names them, --ignore it" in done.out


def test_a_second_run_does_not_overwrite_the_first(fitted: Path, tmp_path: Path) -> None:
    done = call("fit", str(fitted / "t.csv"), "--target", "y", "--out", str(fitted / "run"))
    assert done.code == 2 and "nescio predict" in done.err and "--resume" not in done.err  # it is finished
    (tmp_path / "config.json").write_bytes((fitted / "run" / "config.json").read_bytes())
    done = call("fit", str(fitted / "t.csv"), "--target", "y", "--out", str(tmp_path))
    assert done.code == 2 and "--resume" in done.err


def test_a_run_can_be_repeated_from_its_folder(fitted: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "moved"
    os.rename(fitted / "run", elsewhere)
    try:
        assert call("rerun", str(elsewhere), "--out", str(tmp_path / "again")).code == 0
        first, second = (open_run(place) for place in (elsewhere, tmp_path / "again"))
        assert first.metrics()["scores"] == second.metrics()["scores"]
        assert first.posterior().theta.equal(second.posterior().theta)
    finally:
        os.rename(elsewhere, fitted / "run")


def test_an_interrupt_keeps_the_draws_and_resume_goes_on(tmp_path: Path) -> None:
    method = "2 * (MAP(epochs=2) >> HMC(draws=60, warmup=10, leapfrog=2))"
    arguments = (
        "fit",
        str(table(tmp_path / "t.csv")),
        "--target",
        "y",
        "--method",
        method,
        "--net",
        "mlp(inputs, 3, outputs)",
    )
    assert call(*arguments, "--out", str(tmp_path / "whole")).code == 0

    @contextmanager
    def impatient(label: str) -> Iterator[Callable[[Progress], None]]:
        def tell(report: Progress) -> None:
            if report.method == "HMC" and report.done > 300:
                signal.raise_signal(signal.SIGINT)

        yield tell

    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background of a shell do not listen
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("nescio.cli.fit.bar", impatient)
        patched.setattr("nescio.infer.driver.time.monotonic", iter(range(10**9)).__next__)  # told of every step
        done = call(*arguments, "--out", str(tmp_path / "run"))
    signal.signal(signal.SIGINT, heard)
    assert done.code == 130 and "can be used" in done.err and len(done.err.strip().splitlines()) == 1, done
    part = open_run(tmp_path / "run").posterior()
    assert part.info["interrupted"] and 1 <= part.theta.shape[1] < 60 and len(part.theta) == 2
    assert call("predict", str(tmp_path / "run"), str(tmp_path / "t.csv"), "--out", str(tmp_path / "p.csv")).code == 0
    assert call("fit", "--resume", str(tmp_path / "run")).code == 0
    after, reference = (open_run(tmp_path / name).posterior() for name in ("run", "whole"))
    assert after.theta.equal(reference.theta) and "interrupted" not in after.info
    again = call("fit", "--resume", str(tmp_path / "run"))
    assert again.code == 2 and "finished" in again.err


def test_progress_shows_the_stage_and_the_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    method = "1 * (MAP(epochs=3) >> HMC(draws=3, warmup=3, leapfrog=2))"
    arguments = (
        "--target",
        "y",
        "--net",
        "mlp(inputs, 2, outputs)",
        "--method",
        method,
        "--out",
        str(tmp_path / "run"),
    )
    done = call("fit", str(table(tmp_path / "t.csv")), *arguments)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.err)
    assert done.code == 0 and "run: HMC" in shown and re.search(r"100% 0:00:00 left", shown), shown[-400:]


# ---- predict ---------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def test_numbers_are_predicted_with_their_parts(fitted: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    new.write_text(
        "kind,a,extra\nred,0.5,1\ngreen,,2\nblue,40,3\n"
    )  # no target, another order, a new category, a far row
    done = call("predict", str(fitted / "run"), str(new), "--risk", "0.3", "--within", "1")
    assert done.code == 0, done.err
    rows = read(tmp_path / "new.predictions.csv")
    assert [row["row"] for row in rows] == ["2", "3", "4"]
    for row in rows:
        assert float(row["low"]) < float(row["mean"]) < float(row["high"])
    assert float(rows[2]["epistemic_sd"]) > float(rows[0]["epistemic_sd"]) and rows[2]["abstain"] == "true"
    for part in ("extra", "green", "'I do not know'"):
        assert part in done.out


def test_classes_are_predicted_with_a_promise(classified: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    done = call(
        "predict", str(classified / "run"), str(classified / "t.csv"), "--out", str(out), "--risk", "0.5", "--json"
    )
    assert done.code == 0, done.err
    said, rows = json.loads(done.out), read(out)
    assert said["rows"] == len(rows) == 120 and "held-out rows" in " ".join(said["notes"])
    for row in rows[:20]:
        assert abs(float(row["p(up)"]) + float(row["p(down)"]) - 1) < 1e-4 and row["prediction"] in ("up", "down")
    assert sum(row["abstain"] == "true" for row in rows) == said["abstained"]


def test_a_stream_predicts_what_the_whole_does(fitted: Path, tmp_path: Path) -> None:
    results = []
    for size in (7, 4096):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("nescio.data.streaming.stream_records.__defaults__", (size,))
            assert (
                call("predict", str(fitted / "run"), str(fitted / "t.csv"), "--out", str(tmp_path / "p.csv")).code == 0
            )
        results.append([float(row["mean"]) for row in read(tmp_path / "p.csv")])
    assert len(results[0]) == 60
    np.testing.assert_allclose(*results, rtol=1e-4)


MISUSED = {
    "an option": (("fit", "t.csv", "--taget", "y"), "--target"),
    "a command": (("fitt",), "Did you mean 'fit'"),
    "a number": (("bench", "toy", "--splits", "x"), "nescio bench --help"),
    "an argument": (("predict",), "nescio predict --help"),
}


@pytest.mark.parametrize("name", MISUSED)
def test_misuse_is_one_line(name: str) -> None:
    arguments, said = MISUSED[name]
    done = call(*arguments)
    assert done.code == 2 and said in done.err and len(done.err.strip().splitlines()) == 1, done


def test_version_help_and_near_names(fitted: Path) -> None:
    assert call("--version").out == f"nescio {__version__}\n"
    assert call().code == 2 and call("--help").code == 0 and "predict" in call("--help").out
    done = call("methods", "map")
    assert done.code == 2 and "did you mean MAP?" in done.err
    done = call("fit", str(fitted / "t.csv"), "--out", str(fitted / "none"))
    assert done.code == 2 and "add --target COLUMN, one of a, kind, same, y, cls" in done.err
    assert wished("auto", None, "auto", "MAP()") == Wishes(method="MAP()")


def test_lines_of_json(fitted: Path) -> None:
    done = call("predict", str(fitted / "run"), str(fitted / "t.csv"), "--lines")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == 60 and set(rows[0]) == {"row", "mean", "low", "high", "epistemic_sd", "aleatoric_sd"}


BROKEN = {
    "ragged": ("a,kind\n1,red\n2\n", ":3: every row must have 2 cells"),
    "missing column": ("a\n1\n", "no kind"),
    "words for numbers": ("a,kind\nx,red\n", "all numbers or all text"),
    "empty": ("", "an empty file"),
    "no rows": ("a,kind\n", "a row to predict"),
    "nul": ("a,kind\n1,\0\n", "NUL"),
    "quotes": ('a,kind\n1,"red\n', "quotes"),
    "blank in the middle": ("a,kind\n1,red\n\n2,blue\n", "a blank line"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rows_leave_no_file(name: str, fitted: Path, tmp_path: Path) -> None:
    text, said = BROKEN[name]
    (tmp_path / "new.csv").write_text(text)
    done = call("predict", str(fitted / "run"), str(tmp_path / "new.csv"))
    assert done.code == 2 and said in done.err and len(done.err.strip().splitlines()) == 1, done
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


@pytest.mark.parametrize("file", ["config.json", "inputs.json", "posterior.safetensors"])
@pytest.mark.parametrize("damage", ["{", '{"a": 1}', "[" * 9000, ""])
def test_a_damaged_folder_is_refused(file: str, damage: str, fitted: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for path in (fitted / "run").iterdir():
        (run / path.name).write_bytes(path.read_bytes())
    (run / file).write_text(damage)
    done = call("predict", str(run), str(fitted / "t.csv"), "--out", str(tmp_path / "p.csv"))
    assert done.code == 2 and len(done.err.strip().splitlines()) == 1, done


# ---- other data ------------------------------------------------------------------------------------------------------


def test_arrays_and_image_folders(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for name, level in (("dark", 40), ("light", 200)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(level - 20, level + 20, (8, 8)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    done = call("fit", str(tmp_path / "images"), "--method", FAST, "--out", str(tmp_path / "run"), "--test", "0.25")
    assert done.code == 0 and "12 grey images of 8 x 8" in done.out, done
    assert call("predict", str(tmp_path / "run"), str(tmp_path / "images"), "--out", str(tmp_path / "p.csv")).code == 0
    rows = read(tmp_path / "p.csv")
    assert len(rows) == 12 and rows[0]["row"].endswith("0.png") and set(rows[0]) > {"p(dark)", "p(light)"}

    x = rng.normal(size=(40, 3))
    np.savez(tmp_path / "d.npz", x=x, y=x[:, 0] * 2)
    assert call("fit", str(tmp_path / "d.npz"), "--method", FAST, "--out", str(tmp_path / "run2")).code == 0
    assert call("predict", str(tmp_path / "run2"), str(tmp_path / "d.npz"), "--out", str(tmp_path / "q.csv")).code == 0
    assert len(read(tmp_path / "q.csv")) == 40
    np.savez(tmp_path / "wrong.npz", z=x)
    done = call("fit", str(tmp_path / "wrong.npz"), "--out", str(tmp_path / "run3"))
    assert done.code == 2 and "np.savez" in done.err


def test_the_catalogue_and_the_data_sets(tmp_path: Path) -> None:
    done = call("methods")
    assert done.code == 0 and "MCLMC" in done.out and "HalfCauchy" in done.out
    assert json.loads(call("methods", "laws", "--json").out)["laws"]["Normal"]
    assert "hold_out" in call("methods", "MAP").out
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NESCIO_DATA", str(tmp_path))
        assert json.loads(call("data", "list", "--json").out)["data"]["mnist"] == "no"
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "mnist.npz").write_bytes(b"no")
        done = call("data", "add", str(tmp_path / "in" / "mnist.npz"))
        assert done.code == 2 and "bytes" in done.err and not (tmp_path / "mnist.npz").exists()


def test_a_known_file_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"some bytes"
    entry = Entry("tiny", len(content), hashlib.sha256(content).hexdigest(), "free", "here", "nowhere")
    monkeypatch.setattr("nescio.data.registry.ENTRIES", (entry,))
    monkeypatch.setenv("NESCIO_DATA", str(tmp_path / "data"))
    (tmp_path / "tiny.npz").write_bytes(b"same bytes")
    done = call("data", "add", str(tmp_path / "tiny.npz"))
    assert done.code == 2 and "sha256" in done.err and not list((tmp_path / "data").iterdir())
    (tmp_path / "tiny.npz").write_bytes(content)
    assert call("data", "add", str(tmp_path / "tiny.npz")).code == 0
    assert json.loads(call("data", "list", "--json").out)["data"]["tiny"] == "yes"


def test_twins_of_training_rows_are_counted(tmp_path: Path) -> None:
    rows = [f"{i % 5},{i % 5 + 1}" for i in range(40)]  # every held-out row has a twin
    (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(rows) + "\n")
    assert "4 of the 4 held-out rows repeat a training row" in " ".join(read_given(tmp_path / "t.csv", ["y"]).notes)
    (tmp_path / "u.csv").write_text("a,y\n" + "\n".join(f"{i},{i * i}" for i in range(40)) + "\n")
    assert "repeat" not in " ".join(read_given(tmp_path / "u.csv", ["y"]).notes)


@pytest.mark.parametrize("computed", [True, False])
def test_what_a_failing_run_has_computed_stays(tmp_path: Path, computed: bool) -> None:
    run = SimpleNamespace(folder=tmp_path / "run")
    (run.folder / "steps").mkdir(parents=True)
    if computed:
        (run.folder / "steps" / "checkpoint-90.safetensors").touch()
    with pytest.raises(InputError, match="finite"), cleared(cast("Any", run), new=True):
        raise InputError("the loss must stay finite", "nan", "lower lr")
    assert run.folder.exists() == computed
