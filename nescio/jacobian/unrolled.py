"""Functions of several weights, written out in simpler ones, so that each weight acts by a linear map: attention and LSTM.

NotImplemented where an option is met that is not written out here; such a call is then differentiated as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    **named: Any,
) -> Any:
    """Projections apart; what is between them by the function itself, its own projections the identity."""
    if key is not query or value is not query or in_proj_weight is None or bias_k is not None:
        return NotImplemented
    if dropout_p and named.get("training", True):
        return NotImplemented
    if named.get("use_separate_proj_weight") or named.get("static_k") is not None or named.get("static_v") is not None:
        return NotImplemented
    q, k, v = F.linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
    eye = torch.eye(embed_dim_to_check, dtype=q.dtype, device=q.device)
    apart: dict[str, Any] = {"q_proj_weight": eye, "k_proj_weight": eye, "v_proj_weight": eye}
    options: dict[str, Any] = {**named, **apart, "use_separate_proj_weight": True}
    ends = (None, None, None, None, add_zero_attn, 0.0, eye, None)
    mixed, weights = F.multi_head_attention_forward(q, k, v, embed_dim_to_check, num_heads, *ends, **options)
    return F.linear(mixed, out_proj_weight, out_proj_bias), weights


def lstm(x: Any, start: Any, weights: Any, biased: Any, layers: Any, dropout: Any, training: Any, *rest: Any) -> Any:
    """Layer by layer and step by step: gates i, f, g, o = W x + b + U h + c."""
    if not isinstance(x, Tensor) or not isinstance(weights, (list, tuple)) or (dropout and training) or len(rest) != 2:
        return NotImplemented  # packed sequences
    both, batch_first = rest
    kinds, ways = 4 if biased else 2, 2 if both else 1
    if len(weights) != kinds * layers * ways:  # with projections
        return NotImplemented
    x = x.transpose(0, 1) if batch_first else x  # (time, examples, features)
    ends: list[tuple[Tensor, Tensor]] = []
    for layer in range(layers):
        sides = []
        for way in range(ways):
            i = layer * ways + way
            own = [*weights[kinds * i : kinds * (i + 1)], None, None][:4]
            out, last = one_way(x.flip(0) if way else x, start[0][i], start[1][i], own)
            sides.append(out.flip(0) if way else out)
            ends.append(last)
        x = torch.cat(sides, -1)
    hidden, cell = (torch.stack(each) for each in zip(*ends, strict=True))
    return x.transpose(0, 1) if batch_first else x, hidden, cell


def one_way(x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor | None]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    w, u, b, d = weights
    assert w is not None and u is not None
    driven, outs = F.linear(x, w, b), []  # (time, examples, 4 hidden)
    for step in driven:
        i, f, g, o = (step + F.linear(h, u, d)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outs.append(h)
    return torch.stack(outs), (h, c)


UNROLLED: dict[Any, Callable[..., Any]] = {F.multi_head_attention_forward: attention, torch._VF.lstm: lstm}
