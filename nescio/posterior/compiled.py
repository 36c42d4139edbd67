"""A posterior as a plain module, x -> (mean, epistemic, aleatoric) in one pass: for real time, `torch.export`, ONNX, other languages.

Where only the last layer is random the functions are Gaussian given the features, and exact: a pass costs a deterministic one and a small
product. Otherwise means and variances go through the whole network (nescio/moments/). Weights are copied; nothing of nescio is needed
to run what comes out of `torch.export`.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.export import Dim, export
from torch.nn import functional as F

from nescio.errors import InputError, UnsupportedError
from nescio.jacobian.quadratic import spectrum
from nescio.likelihoods import Categorical
from nescio.linalg import Blocks, Diag, Kron, Operator, Spectral
from nescio.model import Model, sort
from nescio.moments import Propagation
from nescio.network import Network, Params, few
from nescio.posterior.head import Head, head_of
from nescio.posterior.observed import Told, observed
from nescio.posterior.places import places

if TYPE_CHECKING:
    from nescio.posterior.gaussian import GaussianPosterior


class Forms(NamedTuple):
    """Variances of outputs as squares of linear maps of φ: Var f_o = Σ_j weights_oj (φ · root_j)² with one root (p, p), or by a root for
    each output (outputs, p, p) without weights. `apart`: weights, or roots, of the third number of posterior/observed.py."""

    root: Tensor
    weights: Tensor | None = None
    apart: Tensor | None = None


@final
class LastLayer(nn.Module):
    """Features; their mean and all roots by one product, for calls are what takes time of a single input; variances from squares."""

    matrix: Tensor  # (outputs + roots, features)
    shift: Tensor | None
    weights: Tensor  # (outputs, or twice as many, roots)

    def __init__(self, body: nn.Module, weight: Tensor, bias: Tensor | None, forms: Forms) -> None:
        super().__init__()
        self.body, self.outputs = body, len(weight)
        inputs, apart = forms.root.shape[-1], [] if forms.apart is None else [forms.apart]
        if forms.weights is not None:
            roots, weights = [forms.root], torch.cat([forms.weights, *apart])
        else:  # each output has roots of its own
            roots = [forms.root, *apart]
            weights = torch.eye(len(weight) * len(roots)).to(weight).repeat_interleave(inputs, 1)
        mean = weight if bias is None else torch.cat([weight, bias[:, None]], 1)
        whole = torch.cat([mean, *(root.mT.reshape(-1, inputs) for root in roots)])
        self.register_buffer("matrix", whole if bias is None else whole[:, :-1].contiguous())
        self.register_buffer("shift", None if bias is None else whole[:, -1].clone())
        self.register_buffer("weights", weights)

    def forward(self, *args: Any, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
        both = F.linear(self.body(*args, **named), self.matrix, self.shift)
        variances = F.linear(both[:, self.outputs :].square(), self.weights)
        return both[:, : self.outputs], variances[:, : self.outputs], variances[:, -self.outputs :]


@final
class SinglePass(nn.Module):
    """x -> (mean, epistemic, aleatoric)."""

    def __init__(self, outputs: nn.Module, observed: nn.Module) -> None:
        super().__init__()
        self.outputs, self.observed = outputs, observed
        self.requires_grad_(False)
        self.eval()

    def forward(self, x: Any) -> Told:
        if isinstance(self.outputs, LastLayer):
            given = self.outputs(**x) if isinstance(x, dict) else self.outputs(*(x if isinstance(x, tuple) else (x,)))
            return self.observed(*given)
        mean, variance = self.outputs(x)
        return self.observed(mean, variance, variance)


def example(model: Model, info: dict[str, Any], x: Any) -> Any:
    """The input that was given, or one of the form that the fit had."""
    if x is not None:
        return x
    form = info.get("input")
    if not isinstance(form, dict):
        raise InputError("the form of an input must be known", "none on record", "write posterior.compile(x[:2])")
    dtype = getattr(torch, str(form["dtype"]))
    return torch.zeros(2, *form["shape"], dtype=dtype, device=model.network.like.device)


def trained(network: Network, params: Params) -> nn.Module:
    """A copy of the network that holds these numbers."""
    net = copy.deepcopy(network.net)
    own = {name: x.detach().clone() for name, x in params.items()}
    net.load_state_dict({**net.state_dict(), **own})
    return net.requires_grad_(False).eval()


def last_layer(network: Network, params: Params, head: Head, forms: Forms) -> LastLayer:
    net, like = trained(network, params), network.like
    layer = net.get_submodule(head.name)
    assert isinstance(layer, nn.Linear)
    weight, bias = layer.weight.detach().clone(), None if layer.bias is None else layer.bias.detach().clone()
    if head.name:
        path, _, leaf = head.name.rpartition(".")
        setattr(net.get_submodule(path), leaf, nn.Identity())
    else:
        net = nn.Identity()
    return LastLayer(net, weight, bias, Forms(*(None if x is None else x.to(like) for x in forms)))  # type: ignore[arg-type]


def forms(covariance: Operator, table: Tensor, classes: bool) -> Forms:
    """For a covariance of the weights whose places among the random ones are `table` (outputs, p)."""
    flat, (outputs, inputs) = table.reshape(-1), table.shape
    factor = outputs / (outputs - 1) if outputs > 1 else 1.0
    pairs = covariance.pairs() if isinstance(covariance, Blocks) else [(covariance, torch.arange(len(flat)).to(flat))]
    if len(pairs) == 1 and isinstance(pairs[0][0], (Kron, Spectral)) and torch.equal(pairs[0][1], flat):
        left, right, values = spectrum(pairs[0][0], torch.float64)
        left, right = (f.diag() if f.dim() == 1 else f for f in (left, right))
        table_of = values.view(outputs, inputs)
        apart = factor * (left - left.mean(0)).square() @ table_of if classes else None
        return Forms(right, left.square() @ table_of, apart)
    if isinstance(covariance, Diag):
        return Forms(torch.eye(inputs).to(covariance.values), covariance.values[flat].view(outputs, inputs))
    whole = covariance.dense()[flat][:, flat].view(outputs, inputs, outputs, inputs)
    root = torch.linalg.cholesky(torch.stack([whole[o, :, o] for o in range(outputs)]))
    if not classes:
        return Forms(root)
    centre = torch.eye(outputs).to(whole) - 1 / outputs
    away = torch.einsum("oa,aibj,ob->oij", centre, whole, centre)
    small = 1e-9 * away.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * torch.eye(inputs).to(away)
    return Forms(root, None, factor**0.5 * torch.linalg.cholesky(away + small))


def propagated(network: Network, params: Params, variances: dict[str, Tensor], x: Any, factored: bool) -> Propagation:
    """Moments through the whole network; any number of rows."""
    net, x = trained(network, params), few(x, 2)  # one row would count as a constant
    args, named = ((), x) if isinstance(x, dict) else (x if isinstance(x, tuple) else (x,), {})
    rows = {0: Dim("rows", min=1)}
    shapes = dict.fromkeys(named, rows) if named else tuple(rows for _ in args)
    graph = export(net, args, named, dynamic_shapes=shapes).module()
    return Propagation(graph, {name: v.to(network.like) for name, v in variances.items()}, factored)


def of_gaussian(weights: GaussianPosterior, x: Any, factored: bool, exact: bool) -> SinglePass:
    """`exact`: refuse where anything but the last layer is random."""
    model, slots = weights.model, weights.slots
    own, numbers = sort(weights.point(), model.likelihood)
    x = example(model, weights.info, x)
    f = model.network.probe(x)
    if not isinstance(f, Tensor):
        raise UnsupportedError("a compiled posterior has one output", type(f).__name__, "use predict")
    free = torch.zeros(model.dim, dtype=torch.bool)
    free[slots.cpu()] = True
    index = places(model.prior, free, "a compiled posterior")
    observer = observed(model, numbers, f.shape[-1])
    try:
        head = head_of(model.network, model.prior, own, x, free, "this")
    except UnsupportedError:
        head = None
    if head is not None and head.table.numel() == len(slots):
        rank = torch.full((model.dim,), -1, device=slots.device)
        rank[slots] = torch.arange(len(slots), device=slots.device)
        table = rank[head.table.to(slots.device)]
        found = forms(weights.covariance, table, isinstance(model.likelihood, Categorical))
        return SinglePass(last_layer(model.network, own, head, found), observer)
    if exact:
        must, got = "a linearised posterior is compiled where its last layer is random", f"{sorted(index)}"
        raise UnsupportedError(must, got, "use Laplace(...).on(the last layer), or compile without linearize()")
    return SinglePass(propagated(model.network, own, weights.variances(), x, factored), observer)
