"""UCI regression, beside published numbers: nine sets, the 20 standard train/test splits (protein 5) or the gap splits.

One hidden layer of 50 ReLU units (protein 100), a mean and a scale, inputs and target standardised on the training part, in every method;
uci_methods.py has the methods and how their settings were chosen, uci_published.py the published numbers, with their
sources and faults, uci_censored.py which numbers the end of a grid holds back, uci_table.py the comparison. The published
ensembles trained 40 epochs at one learning rate and with adversarial examples. Gap splits (Foong et al., 2019)
leave out the middle third along one feature, so that the test rows lie between the training rows.
NLL is that of the mixture, in the target's units.

    python reproduce/uci.py --method microcanonical [--gap] [--device cuda] [--workers 4] [--budget SECONDS] [--sets boston yacht]
                            [--out FOLDER] [--scores FILE] [--work FOLDER] [--together] [--quick]

Each finished split is one JSON line in the scores file (uci_<method>[_gap].scores.jsonl in the --out folder), and is skipped
by the next run with the same settings; after --budget seconds no new split is started. Files of several machines are merged by
putting them one behind the other, and `--budget 0` makes the table of what is there. With --work a split of dropout that is killed
goes on where it was; with --together all splits of a set are fitted at once, which on a GPU takes as long as one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from evidence import RESULTS, origin, write
from torch import Tensor
from uci_methods import METHODS, Settings, Task
from uci_published import REFERENCES, SETS, splits
from uci_table import Score, rows, show

from nescio.data import load_uci
from nescio.evaluation import coverage, nll, rmse
from nescio.posterior import Posterior

SLOW = ("protein", "naval", "kin8nm", "power")
ENOUGH = 1000  # draws for an interval, which is searched for


class Job(NamedTuple):
    method: str
    gap: bool
    name: str
    split: int
    settings: Settings
    device: str

    def done_in(self, score: Score) -> bool:
        """Lines of the first runs name neither method nor kind of split: they are of ensembles on standard splits."""
        kind = (score.get("method", "ensembles"), score.get("gap", False), score["set"], score["split"])
        mine = (self.method, self.gap, self.name, self.split)
        return kind == mine and all(score.get(key) == value for key, value in self.settings.items())


def run(jobs: Sequence[Job], until: float, work: Path | None, together: bool) -> list[Score]:
    """Fit one split, or several of a set together, and score the test rows; nothing if it is too late to begin."""
    if time.time() >= until:
        return []
    torch.set_num_threads(1)
    entry, settings = METHODS[jobs[0].method], jobs[0].settings
    began = time.perf_counter()
    data = [[t.float() for t in load_uci(job.name, job.split, gap=job.gap)] for job in jobs]
    tasks = [
        Task(job.name, job.split, x, y, x_test, job.device, None if work is None else work / label(job))
        for job, (x, y, x_test, _) in zip(jobs, data, strict=True)
    ]
    at_once = entry.together if together else None
    fitted = [entry.fit(task, settings) for task in tasks] if at_once is None else at_once(tasks, settings)
    seconds = (time.perf_counter() - began) / len(jobs)
    tests = [
        (x_test.to(job.device), y_test.to(job.device)) for job, (_, _, x_test, y_test) in zip(jobs, data, strict=True)
    ]
    return [score(*each, seconds) for each in zip(jobs, fitted, tests, strict=True)]


def label(job: Job) -> str:
    return f"{table_name(job.method, job.gap)}-{job.name}-{job.split}"


def score(job: Job, fitted: tuple[Posterior, dict[str, Any]], test: tuple[Tensor, Tensor], seconds: float) -> Score:
    (posterior, more), (x_test, seen), draws = fitted, test, METHODS[job.method].draws(job.settings)
    predictive = posterior.predict(x_test, draws)
    few = predictive if draws is None or draws <= ENOUGH else posterior.predict(x_test, ENOUGH)
    more = {k: nll(v.predict(x_test, draws), seen) if isinstance(v, Posterior) else v for k, v in more.items()}
    made = origin()
    if job.device != "cpu":
        made["machine"] += f", {torch.cuda.get_device_name()}"
    return {
        "method": job.method,
        "gap": job.gap,
        "set": job.name,
        "split": job.split,
        **job.settings,
        **more,
        "nll": nll(predictive, seen),
        "rmse": rmse(predictive, seen),
        "coverage": coverage(few, seen),
        "coverage of 95%": coverage(few, seen, 0.95),
        "seconds": round(seconds, 2),
        "made": made,
    }


def read(path: Path) -> list[Score]:
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def planned(method: str, gap: bool, sets: Sequence[str], quick: bool, device: str) -> list[Job]:
    """Slow sets first, so that no worker is left alone with one at the end."""
    of = METHODS[method].settings
    order = sorted(sets, key=lambda name: SLOW.index(name) if name in SLOW else len(SLOW))
    counts = {name: 1 if quick else splits(name, gap) for name in order}
    return [Job(method, gap, name, i, of(name, quick), device) for name in order for i in range(counts[name])]


def kept(jobs: Sequence[Job], scores: Sequence[Score]) -> list[Score]:
    """The score of each job that is done, the first where there are several."""
    found = [next((score for score in scores if job.done_in(score)), None) for job in jobs]
    return [score for score in found if score is not None]


def elsewhere(method: str, gap: bool) -> dict[str, Sequence[Score]]:
    """What the other methods of ours have scored on the same splits, as far as it is kept."""
    found: dict[str, Sequence[Score]] = {}
    for other, entry in METHODS.items():
        jobs = planned(other, gap, SETS, False, "cpu")
        scores = kept(jobs, read(RESULTS / f"{table_name(other, gap)}.scores.jsonl")) if other != method else []
        if scores:
            found[f"ours, {entry.label}"] = scores
    return found


def table_name(method: str, gap: bool) -> str:
    return f"uci_{method}{'_gap' if gap else ''}"


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    began = time.time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=list(METHODS), default="ensembles")
    parser.add_argument("--gap", action="store_true", help="gap splits, one a feature, in place of the standard ones")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no split is started")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--scores", type=Path, help="finished splits, read and appended to")
    parser.add_argument("--work", type=Path, help="unfinished splits")
    parser.add_argument("--together", action="store_true", help="all splits of a set at once, where the method can")
    parser.add_argument("--quick", action="store_true", help="two small sets, one split, few steps")
    options = parser.parse_args(arguments)
    name = table_name(options.method, options.gap)
    path = options.scores or (None if options.quick else options.out / f"{name}.scores.jsonl")
    if options.quick:
        options.sets, options.workers = ("boston", "yacht"), 1
    jobs = planned(options.method, options.gap, options.sets, options.quick, options.device)
    scores = kept(planned(options.method, options.gap, SETS, options.quick, options.device), read(path) if path else [])
    todo = [job for job in jobs if not any(job.done_in(score) for score in scores)]
    work = partial(run, until=began + options.budget, work=options.work, together=options.together)
    groups = [[job] for job in todo]
    if options.together and METHODS[options.method].together is not None:
        groups = [list(group) for _, group in groupby(todo, lambda job: job.name)]
    with get_context("spawn").Pool(options.workers) if options.workers > 1 and todo else nullcontext() as pool:
        for done in (
            one for some in (pool.imap_unordered(work, groups) if pool else map(work, groups)) for one in some
        ):
            scores.append(done)
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a") as file:
                    file.write(json.dumps(done) + "\n")
            print(f"{done['set']} {done['split']}: nll {done['nll']:.3f}, {done['seconds']} s", flush=True)
    left = sum(not any(job.done_in(score) for score in scores) for job in jobs)
    if not scores:
        print("nothing is done yet")
        return []
    table = rows(options.method, options.gap, scores, elsewhere(options.method, options.gap))
    flags = (" --gap" if options.gap else "") + (" --quick" if options.quick else "")
    command = f"python reproduce/uci.py --method {options.method}{flags}"
    seeds = sorted({score["split"] for score in scores})
    made = {**scores[0]["made"], "references": {r.label: {"source": r.source, "note": r.note} for r in REFERENCES}}
    print(show(table))
    print(f"{left} splits left; written to {write(name, command, table, seeds, options.quick, options.out, made).name}")
    return table


if __name__ == "__main__":
    main()
