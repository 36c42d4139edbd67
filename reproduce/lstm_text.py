"""An LSTM on text, and what a dropout mask is: one for all time steps, or a fresh one at each (Gal & Ghahramani, 2016, recurrent).

Sentences from film reviews, positive or negative (Pang & Lee's, 6824 + 1706 in the data folder), cut at 40 words. Embedding and LSTM of 64
units, dropout of 1/2 on what goes into the gates and into the head. `one mask`: the weights are random and drawn once for all steps and
sentences of a batch, BernoulliDropout. `one mask each`: the same with a mask for each sentence. `per step`: a fresh mask at each step,
state included. `inputs`: fresh masks, but never on the state (Zaremba et al., 2014). `none`: maximum a posteriori. `mean field`: a Gaussian
on each weight, from the mode. `ensemble`: five modes. All for the same number of epochs, so that what does not hold a network back
overfits. The paper's numbers are of other tasks (Penn Treebank); its claim is that noise that differs from step to step does harm in the
recurrence and one mask helps. That came out otherwise here: on these short sentences fresh masks at each step are the better ones, by 0.02
nats a sentence.

    python reproduce/lstm_text.py [--device cuda] [--workers 8] [--budget SECONDS] [--epochs 20] [--seeds 5] [--kinds none "one mask"]
                                  [--rows FILE] [--quick]

Each finished network is a line of lstm_text.rows.jsonl in the --out folder (or of --rows) and is skipped by the next run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, final

import numpy as np
import torch
from evidence import write
from expectation import Expectation, at_least, show
from resumable import Job, Line, finish, options
from torch import Tensor, nn

from nescio import Model, fit
from nescio.data import arrays
from nescio.evaluation import accuracy, nll
from nescio.infer import MAP, VI
from nescio.infer.families import BernoulliDropout, MeanField, NetDropout
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.noise import Noise
from nescio.posterior.variational import Variational

LENGTH, WIDTH, DROP, PASSES, EPOCHS, BATCH = 40, 64, 0.5, 50, 20, 64
MEMBERS = 5
KINDS = ("none", "inputs", "per step", "one mask", "one mask each", "mean field", "ensemble")
IDS = ("004-6",)


@final
class TextLSTM(nn.Module):
    """Tokens (sentences, steps), 0 where there is none, to logits (sentences, 2). `kind`: where it drops; see above."""

    def __init__(self, vocabulary: int, width: int, kind: str) -> None:
        super().__init__()
        self.width, self.kind = width, kind
        self.embedding = nn.Embedding(vocabulary, width)
        self.from_input = nn.Linear(width, 4 * width)
        self.from_state = nn.Linear(width, 4 * width, bias=False)
        self.head = nn.Linear(width, 2)
        drop = DROP if kind in ("inputs", "per step", "one mask each") else 0.0
        self.drop_input, self.drop_head = nn.Dropout(drop), nn.Dropout(drop)
        self.drop_state = nn.Dropout(0.0 if kind == "inputs" else drop)

    def forward(self, tokens: Tensor) -> Tensor:
        words = self.embedding(tokens)  # (sentences, steps, width)
        state = cell = words.new_zeros(len(tokens), self.width)
        if self.kind == "one mask each":
            words = words * self.drop_input(torch.ones_like(words[:, :1]))
            mask = self.drop_state(torch.ones_like(state))
        else:
            words, mask = self.drop_input(words), None
        there = (tokens != 0).unsqueeze(-1)
        for here, push in zip(there.unbind(1), self.from_input(words).unbind(1), strict=True):
            seen = self.drop_state(state) if mask is None else state * mask
            enter, forget, write_, leave = (push + self.from_state(seen)).chunk(4, dim=-1)
            new = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(write_)
            cell = torch.where(here, new, cell)
            state = torch.where(here, torch.sigmoid(leave) * torch.tanh(new), state)
        return self.head(self.drop_head(state))


@cache
def sentences() -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Padded tokens and labels for training and test, and the size of the vocabulary."""
    found = arrays("text_sentiment")
    parts: list[Tensor] = []
    for part in ("train", "test"):
        lengths, tokens = found[f"rt/len_{part}"].astype(np.int64), found[f"rt/tokens_{part}"].astype(np.int64)
        padded = np.zeros((len(lengths), LENGTH), np.int64)
        for row, end in enumerate(np.cumsum(lengths)):
            own = tokens[end - lengths[row] : end][:LENGTH]
            padded[row, : len(own)] = own
        parts += [torch.from_numpy(padded), torch.from_numpy(found[f"rt/y_{part}"].astype(np.int64))]
    words = bytes(found["rt/vocab"]).decode().split("\n")
    return parts[0], parts[1], parts[2], parts[3], len(words)


def train(job: Job, until: float, device: str) -> Line:
    *tensors, vocabulary = sentences()
    width, passes = WIDTH, PASSES
    if job["epochs"] < 2:  # quick
        order = Noise(0).at("quick").permutations(1, len(tensors[2]))[0][:16]
        tensors, width, passes = [t[order][:, :6] if t.dim() > 1 else t[order] for t in tensors], 8, 4
    x, y, x_test, y_test = (t.to(device) for t in tensors)
    kind, seed = job["kind"], job["seed"]
    with Noise(seed).at("lstm").scope():
        net = TextLSTM(vocabulary, width, kind).to(device)
    model = Model(net, Normal(0.0, 1.0), Categorical())
    batch = min(BATCH, len(x))
    mode = MAP(epochs=job["epochs"], lr=2e-3, batch_size=batch)
    if kind in ("none", "ensemble"):
        posterior = fit(model, (x, y), mode if kind == "none" else MEMBERS * mode, seed=seed)
    elif kind == "mean field":
        around = VI(MeanField(sd=0.02), epochs=job["epochs"], lr=2e-3, batch_size=batch)
        posterior = fit(model, (x, y), replace(mode, epochs=max(1, job["epochs"] // 4)) >> around, seed=seed)
    else:
        family = BernoulliDropout({"embedding.*": 0.0, "*": DROP}) if kind == "one mask" else NetDropout()
        posterior = fit(model, (x, y), VI(family, epochs=job["epochs"], lr=2e-3, batch_size=batch), seed=seed)
    predicted = {"MC" if kind == "ensemble" else "standard": posterior.predict(x_test)}
    if isinstance(posterior, Variational):
        predicted = {"standard": posterior.at_mean().predict(x_test), "MC": posterior.predict(x_test, draws=passes)}
    scores = {f"error, {rule}": 100 * (1 - accuracy(p, y_test)) for rule, p in predicted.items()}
    return scores | {f"nll, {rule}": nll(p, y_test) for rule, p in predicted.items()} | {"rows": len(x)}


def table(found: Sequence[Line]) -> Iterator[Expectation]:
    scores: dict[tuple[str, str], dict[int, float]] = {}
    for line in found:
        for key in [key for key in line if key.startswith(("error, ", "nll, "))]:
            scores.setdefault((key, line["job"]["kind"]), {})[line["job"]["seed"]] = line[key]
    for (key, kind), values in scores.items():
        yield Expectation(kind, key, float(np.mean(list(values.values()))), len(values))
    for kind in ("one mask", "one mask each"):
        for (key, other), says in {
            ("nll, standard", "none"): "without dropout an LSTM overfits; with one mask for all steps it does not",
            ("nll, MC", "per step"): "noise that differs from step to step does harm in the recurrence",
            ("nll, standard", kind): "the mean over passes is the right rule",
        }.items():
            better, worse = scores.get(("nll, MC", kind), {}), scores.get((key, other), {})
            both = sorted(better.keys() & worse.keys())
            if len(both) > 1:
                gain = at_least([worse[seed] - better[seed] for seed in both])
                metric = f"NLL of {other}, {key.removeprefix('nll, ')}, less its own by MC, less two se"
                yield Expectation(kind, metric, gain, len(both), low=0.0, says=says)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    given = parser.parse_args(arguments)
    if given.quick:
        given.epochs, given.seeds, given.workers = 1, 2, 1
    jobs = [{"kind": kind, "seed": seed, "epochs": given.epochs} for seed in range(given.seeds) for kind in given.kinds]
    path = given.rows or given.out / f"lstm_text{'.quick' if given.quick else ''}.rows.jsonl"
    found = finish(jobs, partial(train, device=given.device), path, given.device, given.workers, given.budget)
    if not found:
        return []
    rows = [expected.to_row(IDS, given.quick) for expected in table(found)]
    command = "python reproduce/lstm_text.py" + (" --quick" if given.quick else f" --epochs {given.epochs}")
    seeds = sorted({line["job"]["seed"] for line in found})
    write("lstm_text", command, rows, seeds, given.quick, given.out, found[0]["made"])
    print(show(rows))
    return rows


if __name__ == "__main__":
    main()
