"""Should I give the drug? Decisions under a predictive, and the answer "I do not know".

Patients with four measurements; illness depends on two of them. A network with a posterior says how probable it is. Four uses of that:
expected costs decide (treating costs 1, an illness left alone 10); the network declines where it would be wrong too often, and a promise
about that is kept on new patients; a measurement that is missing raises the doubt; and sets of diagnoses hold the truth nine times in ten.

    python examples/decisions.py [--quick]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch import distributions as td

from nescio import Model, Posterior, fit
from nescio.decisions import decide, worth
from nescio.evaluation import conformal, promise
from nescio.infer import MAP
from nescio.laws import Normal, fan_in
from nescio.likelihoods import Categorical
from nescio.nets import mlp
from nescio.noise import Noise
from nescio.predictive import Drawn, Predictive

COST = torch.tensor([[0.0, 1.0], [10.0, 1.0]])  # rows: healthy, ill; columns: wait, treat


def patients(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """One in five is ill, on average."""
    noise = Noise(seed)
    x = noise.at("x").normal(n, 4)
    ill = torch.sigmoid(3 * x[:, 0] + 2 * x[:, 0] * x[:, 1] - 2.5)
    return x, (noise.at("y").uniform(n) < ill).long()


def without(posterior: Posterior, x: Tensor, column: int, known: Tensor) -> Predictive:
    """The predictive when one measurement is missing: an average over the values that other patients had."""
    parts = []
    for value in known[:20, column]:
        filled = x.clone()
        filled[:, column] = value
        found = posterior.predict(filled)
        assert isinstance(found, Drawn) and isinstance(found.draws, td.Categorical)
        parts.append(found.draws.probs.mean(0))
    return Drawn(td.Categorical(probs=torch.stack(parts).mean(0)[None]))


def main(quick: bool) -> dict[str, float]:
    n, epochs = (300, 20) if quick else (2000, 100)
    train, held, new = patients(n, 0), patients(500, 1), patients(2000, 2)
    torch.manual_seed(0)
    model = Model(mlp(4, 30, 2), {"*.weight": Normal(0.0, fan_in), "*": Normal(0.0, 1.0)}, Categorical())
    posterior = fit(model, train, 5 * MAP(epochs=epochs))
    predictive, (_, y) = posterior.predict(new[0]), new
    found: dict[str, float] = {}

    decided = decide(predictive, COST)
    by_class = predictive.mean.argmax(-1)  # treat who is probably ill
    found["cost, by expected cost"] = float(COST[y, decided.action].mean())
    found["cost, by the most probable class"] = float(COST[y, by_class].mean())
    found["cost, as expected"] = float(decided.cost.mean())
    found["worth of a perfect test"] = float((decided.cost - decided.perfect).mean())
    found["worth of knowing the weights"] = float(worth(predictive, COST).mean())

    kept = promise(posterior.predict(held[0]), held[1], risk=0.1, confidence=0.9)
    answers = kept.answers(predictive)
    found["answered"] = answers.coverage
    found["wrong among the answered"] = float((answers.value != y)[answers.known].double().mean())
    found["wrong if all are answered"] = float((answers.value != y).double().mean())
    found["answered by its own word"] = predictive.abstain(risk=0.1).coverage

    found["entropy"] = float(predictive.total.mean())
    found["entropy, first measurement missing"] = float(without(posterior, new[0], 0, train[0]).total.mean())
    found["entropy, fourth measurement missing"] = float(without(posterior, new[0], 3, train[0]).total.mean())

    sets = conformal(posterior.predict(held[0]), held[1], level=0.9)(predictive)
    assert isinstance(sets, Tensor)
    found["sets that hold the truth"] = float(sets.gather(1, y[:, None]).double().mean())
    for name, value in found.items():
        print(f"{name:<40}{value:8.3f}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer patients and epochs")
    main(parser.parse_args().quick)
