"""Figures that stand in tables written by hand are those of the kept benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "choose-a-method.md").read_text(encoding="utf-8")


def kept(name: str) -> list[dict[str, Any]]:
    state = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert state["quick"] is False
    return state["rows"]


def by_row(name: str) -> dict[str, dict[str, Any]]:
    return {row["row"]: row for row in kept(name)}


def least_to_most(values: list[float]) -> str:
    """One figure where two digits tell no difference."""
    ends = f"{min(values):.1f}", f"{max(values):.1f}"
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def test_curvature_beside_curvlinops() -> None:
    rows, laplace = by_row("curvature"), by_row("laplace")
    lines = {"Kronecker factors": rows["factors"], "Gauss-Newton matrix times ten vectors": rows["product"]}
    for what, row in lines.items():
        assert f"| {what} | {row['curvlinops_cpu_s']:.2f} s | {row['nescio_cpu_s']:.2f} s |" in ARCHITECTURE
    theirs, ours = laplace["mlp, diag, curvlinops"], laplace["mlp, diag, nescio"]
    said = f"{theirs['fit_cpu_s']:.0f} s for {theirs['points']} points through laplace-torch"
    assert f"{said} | {ours['fit_cpu_s']:.2f} s for {ours['points']:,} |" in ARCHITECTURE
    off = rows["KFAC, tied weights"]["curvlinops"].split()[2]
    assert f"off by {float(off):.1f} times the block's norm" in ARCHITECTURE


def test_laplace_beside_laplace_torch() -> None:
    rows = by_row("laplace")

    def times(kind: str, backend: str, key: str) -> float:
        return rows[f"{kind}, times as long: laplace-torch, {backend}"][key]

    per_input = [row["per input"] for name, row in rows.items() if name.startswith("mlp") and "per input" in row]
    assert f"{round(min(per_input), -1):.0f} to {round(max(per_input), -1):.0f} times faster" in ARCHITECTURE
    assert f"KFAC fit {times('mlp, kfac', 'curvlinops', 'fit'):.1f} times faster than with curvlinops" in ARCHITECTURE
    assert f"{times('mlp, kfac', 'backpack', 'fit'):.1f} times than with BackPACK" in ARCHITECTURE
    diagonal = round(times("mlp, diag", "curvlinops", "fit"), -2)
    assert f"diagonal {diagonal:.0f} and {times('mlp, diag', 'backpack', 'fit'):.1f} times" in ARCHITECTURE
    small = [row["fit"] for name, row in rows.items() if name.startswith("conv") and "fit" in row]
    assert f"A small convolutional net: fit {least_to_most(small)} times" in ARCHITECTURE


def test_chains_on_a_gpu_and_vaes() -> None:
    rows = by_row("gpu")
    chains = {n: rows[f"nescio HMC, {n} chains"] for n in (1024, 8192, 64)}
    said = ", ".join(f"{n} chains {row['ratio_to_jax']:.2f}" for n, row in chains.items())
    assert f"| {said} times JAX's |" in ARCHITECTURE
    memory = [f"{chains[n]['bytes_per_chain'] / 1e6:.1f} MB" for n in (1024, 8192)]
    assert f"| {memory[0]} a chain at 1024, {memory[1]} at 8192 |" in ARCHITECTURE
    gradient = next(row for name, row in rows.items() if name.startswith("ResNet-20"))
    assert f"| {gradient['ours']:.1f} TFLOP/s |" in ARCHITECTURE
    vae = by_row("vae")
    ratios = [vae[f"VAE training, cpu, {how}"]["ratio"] for how in ("compiled", "not compiled")]
    assert (
        f"| {ratios[0]:.2f} compiled, which runs of eleven epochs and more are; {ratios[1]:.2f} not |" in ARCHITECTURE
    )


def test_prediction_in_one_pass() -> None:
    rows = kept("single_pass")

    def ratios(kind: str, nets: tuple[str, ...], compiled: bool, batches: tuple[int, ...] = (64, 256)) -> list[float]:
        return [
            row["ratio"]
            for row in rows
            if row["pass"] == kind and row["net"] in nets and row["compiled"] is compiled and row["batch"] in batches
        ]

    both = ("LeNet", "ResNet-20")
    one = ratios("last layer", ("LeNet",), False, (1,))
    most = max(ratios("last layer", both, True, (1, 64, 256)))
    said = f"a last layer {least_to_most(ratios('last layer', both, False))} passes ({one[0]:.1f} of one small image; "
    assert f"{said}compiled, beside a compiled network, at most {most:.1f} of any)" in GUIDE
    plain, factored, quick, quick_factored = (
        [least_to_most(ratios(kind, (net,), compiled)) for net in both]
        for compiled in (False, True)
        for kind in ("moments", "moments, factored")
    )
    assert f"moments {plain[0]} of LeNet, {plain[1]} of ResNet-20, factored {factored[0]} and {factored[1]};" in GUIDE
    assert f"network {quick[0]} and {quick[1]}, factored {quick_factored[0]} and {quick_factored[1]} (" in GUIDE
