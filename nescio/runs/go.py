"""Fits a run in its folder, so that whatever stops it loses seconds at most, and scores it on the rows that were held out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

from nescio import expressions
from nescio.evaluation.scoring import scores
from nescio.infer.method import Progress, fit
from nescio.likelihoods import Bernoulli
from nescio.posterior import Posterior
from nescio.runs.folder import FIT, METRICS, POSTERIOR, Run, write_text
from nescio.runs.given import Given
from nescio.runs.partial import drawn_so_far

DRAWS = 200  # of a prediction: enough for 90% intervals


def go(
    run: Run,
    given: Given | None = None,
    *,
    progress: Callable[[Progress], None] | None = None,
    device: str | None = None,
) -> Posterior:
    """The posterior, also written to the folder. If it was stopped before, it goes on; interrupted, what was drawn is kept."""
    given = run.given() if given is None else given
    model = run.model()
    binary = isinstance(model.likelihood, Bernoulli)
    data = (given.x, run.inputs.labels(given.y, binary))
    place = run.folder / FIT
    try:
        method = expressions.method(run.config.method)
        posterior = fit(model, data, method, seed=run.config.seed, progress=progress, folder=place, device=device)
    except KeyboardInterrupt:
        partial = drawn_so_far(model, place, run.config.seed)
        if partial is not None:
            finish(run, partial, given)
        raise
    finish(run, posterior, given)
    shutil.rmtree(place, ignore_errors=True)  # checkpoints have served; the posterior holds all of it
    return posterior


def finish(run: Run, posterior: Posterior, given: Given) -> None:
    posterior.save(run.folder / POSTERIOR)
    write_text(run.folder / METRICS, json.dumps(measured(run, posterior, given), indent=1) + "\n")


def measured(run: Run, posterior: Posterior, given: Given) -> dict[str, Any]:
    """Scores of the held-out rows with standard errors, and what the fit cost."""
    info = posterior.info
    told = {key: info[key] for key in ("method", "seconds", "rows", "interrupted", "compiled", "mixing") if key in info}
    told["method"] = run.config.method
    if not given.held_out:
        return {"held_out_rows": 0, "scores": {}, "fit": told}
    binary = isinstance(posterior.model.likelihood, Bernoulli)
    device = posterior.model.network.like.device
    y = run.inputs.labels(given.test_y, binary).to(device)
    predictive = posterior.predict(given.test_x.to(device), draws=DRAWS)
    return {"held_out_rows": given.held_out, "scores": scores(predictive, y), "fit": told}
