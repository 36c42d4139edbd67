"""The same layers with fewer channels, as plain modules of torch."""

from __future__ import annotations

import copy
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio.compression.flow import CONVS, NORMS
from nescio.nets.norm import FilterResponseNorm


@final
class Picked(nn.Linear):
    """A linear map of some of its inputs: pixels that nothing depends on are not read."""

    pick: Tensor

    def __init__(self, pick: Tensor, outputs: int, bias: bool) -> None:
        super().__init__(len(pick), outputs, bias)
        self.register_buffer("pick", pick.clone(), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input.index_select(-1, self.pick), self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, of more inputs"


def resized(module: nn.Module, tensors: dict[str, Tensor], pick: Tensor | None) -> nn.Module:
    """A module of the kind of `module` that holds these tensors, named as in it; refuses what does not fit together by a ValueError."""
    weight, bias = tensors.get("weight"), tensors.get("bias")
    like = next(iter(tensors.values()))
    if isinstance(module, nn.Linear):
        if weight is None or weight.dim() != 2:
            raise ValueError("a linear map without a matrix")
        outputs, inputs = weight.shape
        if pick is not None:
            if len(pick) != inputs or (len(pick) and int(pick.max()) >= module.in_features):
                raise ValueError("inputs that a linear map does not have")
            made: nn.Module = Picked(pick, outputs, bias is not None)
        else:
            made = nn.Linear(inputs, outputs, bias is not None)
    elif isinstance(module, CONVS):
        if weight is None or weight.dim() != module.weight.dim() or weight.shape[2:] != module.weight.shape[2:]:
            raise ValueError("a kernel of another size")
        if module.groups > 1 and weight.shape != module.weight.shape:
            raise ValueError("a grouped convolution of another size")
        made = type(module)(
            weight.shape[1] * module.groups,
            weight.shape[0],
            module.kernel_size,  # type: ignore[arg-type]
            module.stride,  # type: ignore[arg-type]
            module.padding,  # type: ignore[arg-type]
            module.dilation,  # type: ignore[arg-type]
            module.groups,
            bias is not None,
            module.padding_mode,
        )
    elif isinstance(module, NORMS):
        made = type(module)(len(like), module.eps, module.momentum, module.affine, module.track_running_stats)  # type: ignore[arg-type]
    elif isinstance(module, FilterResponseNorm):
        made = FilterResponseNorm(len(like), module.eps)
    elif isinstance(module, nn.PReLU):
        made = nn.PReLU(len(like))
    else:
        made = copy.deepcopy(module)
    made.train(module.training)
    made.to(like.device, like.dtype)
    own = dict(made.named_parameters(recurse=False)) | dict(made.named_buffers(recurse=False))
    for name, tensor in tensors.items():
        if name not in own or own[name].shape != tensor.shape:
            raise ValueError(f"a tensor {name!r} of shape {tuple(tensor.shape)}")
        with torch.no_grad():
            own[name].copy_(tensor)
    return made


def put(net: nn.Module, path: str, module: nn.Module) -> None:
    """In the place of the module that is there."""
    parent, _, name = path.rpartition(".")
    setattr(net.get_submodule(parent), name, module)
