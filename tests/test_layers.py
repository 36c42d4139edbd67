"""Who may import whom: the house has floors, and nothing reaches upwards. The rules stand in docs/architecture.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "nescio"

# room: the rooms it may import. `version` is for everyone.
BOTTOM = {
    *("errors", "noise", "densities", "diagnose", "network", "weights", "linalg", "jacobian"),
    *("predictive", "answers", "functions", "links", "store", "nets", "data"),
}
LAWS = {"errors", "noise", "densities", "linalg"}
RULES: dict[str, set[str]] = {
    "version": set(),
    "errors": set(),
    "noise": {"errors"},
    "densities": {"errors"},
    "narrow": set(),
    "again": {"narrow"},
    "rewritten": {"narrow"},
    "rounding": {"narrow"},
    "cores": set(),
    "tracing": set(),
    "native": {"cores", "rewritten", "tracing"},
    "machine": {"again", "rewritten", "rounding", "tracing"},
    "compiled": {"machine", "native", "noise", "rounding"},
    "batch": set(),
    "handed": set(),
    "weights": set(),
    "linalg": {"errors", "noise"},
    "network": {"errors", "noise"},
    "jacobian": {"network", "weights", "linalg", "errors"},
    "answers": set(),
    "moments": {"errors"},
    "predictive": {"answers", "errors", "noise", "densities"},
    "functions": {"predictive", "diagnose", "errors", "noise"},
    "links": {"predictive", "densities", "errors", "noise"},
    "store": {"errors"},
    "diagnose": {"errors"},
    "nets": {"errors"},
    "data": {"errors", "noise"},
    "laws": LAWS,
    "likelihoods": LAWS | {"laws"},
    "families": LAWS | {"laws", "weights"},
    "model": {"laws", "likelihoods", "predictive", "network", "densities", "errors", "noise"},
    "target": {"batch", "model", "laws", "network", "data", "compiled", "machine", "handed", "errors", "noise"},
    "posterior": {
        *("model", "laws", "likelihoods", "families", "linalg", "jacobian", "predictive", "functions", "links"),
        *("moments", "network", "store", "diagnose", "densities", "errors", "noise"),
    },
    "infer": {
        "batch",
        "target",
        "model",
        "posterior",
        "families",
        "laws",
        "likelihoods",
        "compiled",
        "machine",
        "native",
        "rounding",
        "handed",
        *BOTTOM,
    },
    "marginal": {"infer", "target", "model", "posterior", "laws", "likelihoods", *BOTTOM},
    "generative": {
        *("posterior", "model", "network", "laws", "likelihoods", "densities", "predictive", "nets", "errors", "noise"),
    },
    "evaluation": {"posterior", "model", *BOTTOM},
    "compression": {"posterior", "families", "laws", "likelihoods", "model", *BOTTOM},
    "active": {"infer", "evaluation", "posterior", "model", *BOTTOM},
    "decisions": {"infer", "evaluation", "posterior", "model", *BOTTOM},
    "expressions": {"infer", "families", "laws", "likelihoods", "nets", "errors"},
    "runs": {
        *("expressions", "infer", "evaluation", "model", "posterior", "likelihoods", "predictive"),
        *("target", "data", "nets", "store", "noise", "errors"),
    },
    "sklearn": {
        *("infer", "model", "posterior", "laws", "likelihoods", "predictive", "data", "nets", "noise", "errors"),
    },
    "comparison": {
        *("infer", "evaluation", "target", "model", "posterior", "laws", "likelihoods", "predictive", "data"),
        *("nets", "noise", "errors"),
    },
    "report": {"runs", "infer", "batch", "target", "model", "posterior", "laws", "likelihoods", "evaluation", *BOTTOM},
    "cli": {
        *("comparison", "runs", "expressions", "report", "infer", "target", "model", "posterior"),
        *("laws", "likelihoods", "evaluation", *BOTTOM),
    },
}
# the only third-party packages of a room; everything else needs torch, numpy and the standard library
OUTSIDE = {
    "data": {"polars", "PIL"},
    "report": {"matplotlib", "jinja2", "sklearn"},
    "cli": {"typer", "rich"},
    "comparison": {"sklearn"},
    "sklearn": {"sklearn"},
    "compression": {"onnx", "onnxscript"},
    "store": {"safetensors"},
    "posterior": {"arviz_base", "xarray"},
}
EVERYWHERE = {"torch", "numpy", "nescio"} | set(sys.stdlib_module_names)


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "nescio"


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the room"
            found.add(node.module or "")
            if node.module == "nescio":
                found |= {f"nescio.{alias.name}" for alias in node.names}
    return found


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def offences(path: Path, rules: dict[str, set[str]]) -> list[str]:
    relative = path.relative_to(PACKAGE)
    room = relative.parts[0].removesuffix(".py")
    bad = []
    for module in imports(path):
        top = module.split(".")[0]
        if top == "nescio":
            other = room_of(module)
            if other not in rules[room] | {room, "version", "nescio"}:
                bad.append(f"{relative}: {room} may not import {other}")
        elif top not in EVERYWHERE | OUTSIDE.get(room, set()):
            bad.append(f"{relative}: {room} may not import {top}")
    return bad


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    assert not offences(path, RULES)


def test_a_forbidden_import_is_seen() -> None:
    forbidden = {**RULES, "model": RULES["model"] - {"laws"}}
    assert offences(PACKAGE / "model.py", forbidden)


def test_the_rules_have_no_cycle() -> None:
    done: set[str] = set()
    while len(done) < len(RULES):
        ready = {room for room, below in RULES.items() if room not in done and below - {room} <= done}
        assert ready, f"a cycle among {set(RULES) - done}"
        done |= ready


def test_polars_is_imported_by_one_file_only() -> None:
    users = [path.name for path in files() if any(m.split(".")[0] == "polars" for m in imports(path))]
    assert users == ["files.py"]


def test_arviz_is_imported_by_one_file_only() -> None:
    users = [path.name for path in files() if any(m.split(".")[0] == "arviz_base" for m in imports(path))]
    assert users == ["arviz.py"]


def test_importing_nescio_needs_torch_numpy_and_safetensors_only() -> None:
    heavy = [
        "matplotlib",
        "polars",
        "typer",
        "rich",
        "sklearn",
        "scipy",
        "pandas",
        "torchvision",
        "arviz_base",
        "xarray",
    ]
    names = "nescio.fit, nescio.load, nescio.Model, nescio.evaluate"
    code = f"import sys, nescio, nescio.nets, nescio.data, nescio.infer; {names}; print([m for m in {heavy} if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_no_unsafe_calls() -> None:
    """No pickle, no code from data: eval, exec, pickle, marshal, torch.load and allow_pickle=True occur nowhere."""
    for path in [*files(), PACKAGE / "__init__.py"]:
        tree = ast.parse(path.read_text())
        modules = {m.split(".")[0] for m in imports(path)}
        assert not modules & {"pickle", "marshal", "joblib", "dill", "cloudpickle", "shelve"}, path
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "compile", "__import__", "torch.load", "torch.save"}, (
                    f"{path}: {called}"
                )
                flags = {k.arg for k in node.keywords if isinstance(k.value, ast.Constant) and k.value.value is True}
                assert "allow_pickle" not in flags, path


def test_library_code_does_not_print() -> None:
    for path in files():
        if path.relative_to(PACKAGE).parts[0] == "cli":
            continue
        calls = [ast.unparse(n.func) for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        assert not {"print", "logging.info", "warnings.warn"} & set(calls), path
