"""The tables of docs/variational.md, generative.md, uncertainty.md and compression.md, from the kept results; nothing is entered by hand.

python docs/findings.py        # writes them anew; `make scoreboard` does so, too

A page has `<!-- kept: NAME -->` before a table and `<!-- end -->` after it; NAME is one of TABLES below, or the name of a result whose
expectations are listed. What has not been run leaves a line that says so.
"""

from __future__ import annotations

import re

import kept_at_work as at_work
import kept_generative as generative
import kept_variational as variational
from kept import RESULTS, ROOT, expectations

PAGES = [ROOT / "docs" / name for name in ("variational.md", "generative.md", "uncertainty.md", "compression.md")]
TABLES = {
    **{f.__name__: f for f in (variational.tutorial, variational.log, variational.masks, variational.doubts)},
    **{f.__name__: f for f in (variational.uci, variational.mnist, variational.lenet, variational.lstm)},
    **{f.__name__: f for f in (variational.families, variational.widths, variational.co2, generative.orders)},
    **{f.__name__: f for f in (generative.binarised, generative.others, generative.outside, generative.halves)},
    **{
        f.__name__: f
        for f in (at_work.active, at_work.outside_mnist, at_work.outside_sets, at_work.cifar, at_work.segmentation)
    },
    **{f.__name__: f for f in (at_work.depth, at_work.tasks, at_work.bandit, at_work.explained)},
    **{f.__name__: f for f in (at_work.rates, at_work.speed_cpu, at_work.speed_gpu)},
}


def made(name: str) -> str:
    if name in TABLES:
        return TABLES[name]()
    return expectations(name) if (RESULTS / f"{name}.json").exists() else "Not run in full yet."


def rewritten(text: str) -> str:
    pattern = re.compile(r"(<!-- kept: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda m: f"{m[1]}\n{made(m[2])}\n\n{m[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
