"""Thompson sampling with a posterior over weights: the mushroom task of Blundell et al. (2015) on a real table, e-mails for mushrooms.

4597 e-mails (spambase): let one in or not. A good one that is let in pays 5; spam pays 5 with probability a half and -35 otherwise, -15 on
average; leaving it out pays 0. So a wrong guess either way costs, and only who lets in learns. Agents: Thompson sampling under a
last-layer Laplace approximation, under mean-field VI and under an ensemble, against greedy ones that let in by lot in 0, 1 and 5 % of the
decisions. Trained again on all that was seen every 100 decisions. The paper's result is a figure: the regret of its agent flattens, that of
greedy ones goes on rising.

    python reproduce/bandit.py [--decisions 3000] [--seeds 3] [--only "Thompson, Laplace"] [--workers 2] [--budget SECONDS] [--quick]

Each finished agent is a line of bandit.rows.jsonl.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from evidence import write
from expectation import Expectation, at_least, show
from resumable import Job, Line, finish, options
from torch import Tensor

from nescio import Model
from nescio.data import arrays
from nescio.decisions import Bandit, Greedy, Policy, Thompson, play
from nescio.infer import MAP, VI, Laplace, Method
from nescio.infer.curvature import full
from nescio.infer.families import MeanField
from nescio.laws import Normal, fan_in
from nescio.likelihoods import Gaussian
from nescio.nets import mlp
from nescio.noise import Noise

GOOD, LUCKY, POISONED, UNIT = 5.0, 5.0, -35.0, 10.0  # rewards are told to the network in units of ten
WIDTH, EVERY = 50, 100
IDS = ("001-4",)


@cache
def letters() -> tuple[Tensor, Tensor]:
    """Standardised features (rows, 57), logged first, for they are counts; and whether it is spam."""
    found = arrays("tabular_classification")
    x = torch.log1p(torch.from_numpy(found["spambase/x"])).float()
    return (x - x.mean(0)) / x.std(0).clamp_min(1e-6), torch.from_numpy(found["spambase/y"]).bool()


def bandit(rows: int) -> Bandit:
    x, spam = (t[:rows] for t in letters())

    def reward(which: Tensor, actions: Tensor, noise: Noise) -> Tensor:
        lucky = noise.uniform(len(which)) < 0.5
        let_in = torch.where(spam[which] & ~lucky, POISONED, GOOD)
        return actions * let_in / UNIT

    expected = torch.stack([torch.zeros(len(x)), torch.where(spam, (LUCKY + POISONED) / 2, GOOD)], 1)
    return Bandit(x, reward, expected)


def trained(n: int) -> MAP:
    return MAP(epochs=min(60, max(20, 4000 // n)), lr=3e-3, batch_size=min(64, n))


AGENTS: dict[str, tuple[Policy, Callable[[int], Method]]] = {
    "Thompson, Laplace": (Thompson(), lambda n: trained(n) >> Laplace(full).on("2.*")),
    "Thompson, mean field": (
        Thompson(),
        # spreads begin narrow and must have the time to widen where little was seen: 160 steps at least
        lambda n: trained(n) >> VI(MeanField(), epochs=max(10, 8000 // n), lr=1e-2, batch_size=min(64, n)),
    ),
    "Thompson, ensemble": (Thompson(), lambda n: 5 * trained(n)),
    "greedy": (Greedy(0.0), trained),
    "greedy, 1 %": (Greedy(0.01), trained),
    "greedy, 5 %": (Greedy(0.05), trained),
}


def run(job: Job, until: float) -> Line:
    policy, method = AGENTS[job["agent"]]
    task = bandit(200 if job["quick"] else 10_000)
    with Noise(job["seed"]).at("net").scope():
        net = mlp(task.contexts.shape[1] + 2, WIDTH, 1)
    model = Model(net, {"*.weight": Normal(0.0, fan_in), "*": Normal(0.0, 1.0)}, Gaussian(1.0))
    every = 20 if job["quick"] else EVERY
    made = play(model, task, method, policy, decisions=job["decisions"], every=every, seed=job["seed"])
    count = job["decisions"]
    curve = {str(n): float(made.regret[n - 1]) for n in range(every, count + 1, every)}
    last = float(made.regret[-1] - made.regret[3 * count // 4 - 1]) / (count - 3 * count // 4)
    return {"regret": float(made.regret[-1]), "regret a decision, last quarter": last, "curve": curve}


def table(found: Sequence[Line]) -> Iterator[Expectation]:
    by: dict[str, dict[int, Line]] = {}
    for line in found:
        by.setdefault(line["job"]["agent"], {})[line["job"]["seed"]] = line
    for agent, own in by.items():
        for key in ("regret", "regret a decision, last quarter"):
            yield Expectation(agent, key, float(np.mean([line[key] for line in own.values()])), len(own))
    for agent in by:
        if agent.startswith("Thompson"):
            first = float(np.mean([line["curve"][min(line["curve"], key=int)] for line in by[agent].values()]))
            start = first / min(int(k) for line in by[agent].values() for k in line["curve"])
            late = float(np.mean([line["regret a decision, last quarter"] for line in by[agent].values()]))
            yield Expectation(
                agent,
                "regret a decision, last quarter over first part",
                late / start,
                len(by[agent]),
                high=0.25,
                says="it flattens",
            )
        both = sorted(by[agent].keys() & by.get("greedy, 5 %", {}).keys())
        if agent.startswith("Thompson") and len(both) > 1:
            gain = at_least([by["greedy, 5 %"][s]["regret"] - by[agent][s]["regret"] for s in both])
            yield Expectation(
                agent, "regret of greedy, 5 %, less its own, less two se", gain, len(both), low=0.0, says="figure 6"
            )


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--decisions", type=int, default=3000)
    parser.add_argument("--only", nargs="*", choices=list(AGENTS), default=list(AGENTS))
    given = parser.parse_args(arguments)
    if given.quick:
        given.decisions, given.seeds, given.workers = 40, 1, 1
    jobs = [
        {"agent": name, "seed": seed, "decisions": given.decisions, "quick": given.quick}
        for seed in range(given.seeds)
        for name in given.only
    ]
    path = given.rows or given.out / f"bandit{'.quick' if given.quick else ''}.rows.jsonl"
    found = finish(jobs, run, path, given.device, given.workers, given.budget)
    if not found:
        return []
    rows = [expected.to_row(IDS, given.quick) for expected in table(found)]
    command = "python reproduce/bandit.py" + (" --quick" if given.quick else f" --decisions {given.decisions}")
    seeds = sorted({line["job"]["seed"] for line in found})
    write("bandit", command, rows, seeds, given.quick, given.out, found[0]["made"])
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
