r"""IVON: natural gradients for independent Gaussians (Shen et al., 2024, algorithm 1), as an optimiser of `VI(MeanField())`.

With a precision s = 1 / σ² for each number and the negative ELBO L, whose slopes any estimate may give,

    s ← s (1 - r a + ½ r² a²),     a = -σ dL/dσ,     r = 1 - β₂          (positive whatever a is)
    m ← m - lr σ² ḡ,               ḡ the moving average of dL/dm, by β₁

At a = 0 the precision is the expected curvature of loss and prior, which is the optimum of mean field. With a drawn weight w = m + σ ε,
-a = σ ε dL/dw - 1: the paper's estimate of the curvature by one gradient; by the local rule it has less noise.

    VI(MeanField(), optimizer=IVON, lr=0.1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

from nescio.errors import InputError


@final
class IVON(Optimizer):
    """`params`: (name, parameter) pairs; "….loc" and "….rho" of one prefix are a Gaussian. The others take steps of Adam.

    `betas`: of the slope and of the curvature. `others`: Adam's lr, in parts of lr. `observations`: the loss is the negative ELBO divided
    by so many; VI tells it.
    """

    def __init__(
        self,
        params: Iterable[tuple[str, Tensor]],
        lr: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.99),
        others: float = 0.1,
        observations: int = 1,
    ) -> None:
        if not lr > 0 or not all(0 <= beta < 1 for beta in betas):
            got = f"lr={lr}, betas={betas}"
            raise InputError("lr must be positive and betas lie in [0, 1)", got, "try 0.1 and (0.9, 0.99)")
        given = list(params)
        if not all(isinstance(pair, tuple) and isinstance(pair[0], str) for pair in given):
            raise InputError("IVON needs names", "parameters without", "use loss.named_parameters()")
        super().__init__(given, {"lr": lr, "betas": betas, "others": others, "observations": observations})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            named = dict(zip(group["param_names"], group["params"], strict=True))
            for name, p in named.items():
                prefix, _, leaf = name.rpartition("loc")
                rho = named.get(f"{prefix}rho") if not leaf and name.endswith("loc") else None
                if rho is not None:
                    self.natural(p, rho, group)
                elif not (name.endswith("rho") and f"{name[:-3]}loc" in named):
                    self.adam(p, group)
        return loss

    def natural(self, loc: Tensor, rho: Tensor, group: dict[str, Any]) -> None:
        if loc.grad is None or rho.grad is None:
            return
        n, (beta1, beta2) = group["observations"], group["betas"]
        step, average = self.averaged(loc, beta1)
        sd = F.softplus(rho)
        a = -n * sd * rho.grad / torch.sigmoid(rho)  # dσ/dρ
        r = (
            (1 - beta2) * group["lr"] / self.defaults["lr"]
        )  # both steps follow a schedule: with a constant one noise stays
        sd = sd * (1 - r * a + 0.5 * (r * a).square()).rsqrt()
        loc.addcmul_(sd.square(), average, value=-group["lr"] * n / (1 - beta1**step))
        rho.copy_(sd + torch.log(-torch.expm1(-sd)))  # softplus(rho) = sd

    def adam(self, p: Tensor, group: dict[str, Any]) -> None:
        if p.grad is None:
            return
        beta1, beta2 = 0.9, 0.999
        step, average = self.averaged(p, beta1)
        squares = self.state[p].setdefault("squares", torch.zeros_like(p)).lerp_(p.grad.square(), 1 - beta2)
        root = (squares / (1 - beta2**step)).sqrt_().add_(1e-8)
        p.addcdiv_(average, root, value=-group["lr"] * group["others"] / (1 - beta1**step))

    def averaged(self, p: Tensor, beta: float) -> tuple[int, Tensor]:
        """(number of the step, moving average of the slope)."""
        state = self.state[p]
        state["step"] = state.get("step", 0) + 1
        assert p.grad is not None
        return state["step"], state.setdefault("average", torch.zeros_like(p)).lerp_(p.grad, 1 - beta)
