"""The command line as a user meets it: exit codes, one-line errors, speed of --help."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

NESCIO = [sys.executable, "-m", "nescio.cli.main"]


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*NESCIO, *arguments], capture_output=True, text=True, env={**os.environ, **(env or {})})


def test_help_is_fast() -> None:
    """At most 0.3 s of processor time on an idle machine; allowed thrice that here, where two workers share two cores."""
    fastest = 10.0
    for _ in range(3):
        before = time.perf_counter()
        done = run("--help")
        fastest = min(fastest, time.perf_counter() - before)
    assert done.returncode == 0 and "demo" in done.stdout
    assert fastest < 0.9


def test_help_does_not_import_torch() -> None:
    code = "import sys, nescio.cli.main; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_demo_prints_a_table_and_draws_two_pictures(tmp_path: Path) -> None:
    done = run("demo", "--quick", "--out", str(tmp_path / "demo"))
    assert done.returncode == 0, done.stderr
    assert "ensemble of 10" in done.stdout
    for name in ("concrete", "gap"):
        assert (tmp_path / "demo" / f"{name}.svg").read_text().startswith("<?xml")
        assert (tmp_path / "demo" / f"{name}.csv").stat().st_size > 100


def test_the_demo_is_reproducible(tmp_path: Path) -> None:
    tables = [run("demo", "--quick", "--out", str(tmp_path / str(i))).stdout for i in range(2)]
    numbers = [re.findall(r"\d+\.\d+", table.split("picture")[0]) for table in tables]
    assert numbers[0] == numbers[1] and len(numbers[0]) >= 8


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = run("demo", "--quick", "--out", str(blocked))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_an_unknown_command_is_exit_code_2() -> None:
    done = run("frobnicate")
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_datasets_lists_what_is_known(tmp_path: Path) -> None:
    done = run("datasets", env={"NESCIO_DATA": str(tmp_path), "COLUMNS": "300"})
    assert done.returncode == 0 and "mnist" in done.stdout and "no" in done.stdout


def test_an_interrupt_is_one_line_and_exit_code_130(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [*NESCIO, "demo", "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(6)  # imports take a while; training takes longer
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130 and said.strip() == "nescio: interrupted"
