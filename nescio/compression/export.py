"""The small network for other runtimes: as a program of torch.export, or as an ONNX file. Both take any number of rows."""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from nescio.errors import UnsupportedError
from nescio.store.atomic import file_name


def exported(net: nn.Module, x: Tensor) -> ExportedProgram:
    """`exported(small.net, x[:2])`; `torch.export.save` writes it. `x`: two rows or more."""
    rows = x if len(x) > 1 else torch.cat([x, x])
    with torch.no_grad():
        return torch.export.export(net.eval(), (rows,), dynamic_shapes=({0: Dim("rows")},))


def to_onnx(net: nn.Module, x: Tensor, path: str | os.PathLike[str]) -> None:
    """An ONNX file with one input `x` and one output `f`, weights included. Of `posterior.compile()` the outputs are three: `y_mean`,
    `epistemic` and `aleatoric`."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        must, got = "ONNX needs the packages onnx and onnxscript", f"no {missing[0]}"
        raise UnsupportedError(must, got, "pip install nescio[export]")
    name, rows = file_name(path), x if len(x) > 1 else torch.cat([x, x])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's exporter warns of torch's own code
        outputs = ["f"] if isinstance(net.eval()(rows), Tensor) else ["y_mean", "epistemic", "aleatoric"]
        # y_mean: torch calls its own nodes `mean`, and a name may be used once
        torch.onnx.export(
            net,
            (rows,),
            name,
            input_names=["x"],
            output_names=outputs,
            dynamic_shapes=({0: Dim("rows")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
