"""The one driver of algorithms that go step by step: optimisers, samplers and accumulators alike.

The driver feeds batches and noise to a method's steps, keeps the states it asks for, and joins blocks of chains. Noise is keyed by
(seed, stream, block of chains, step) and shuffles by (seed, stream, block, epoch), so step t of a run is the same whatever
happened before it. Chains of a block share one vectorised call where the network allows it and memory suffices.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nescio.errors import InputError
from nescio.infer.begin import from_network
from nescio.infer.method import Progress, Run, Start
from nescio.infer.resume import Held, Record, Stored
from nescio.posterior.draws import Draws
from nescio.posterior.mixture import Mixture
from nescio.posterior.posterior import Ends, Posterior
from nescio.target import Target

if TYPE_CHECKING:
    from nescio.infer.iterative import Iterative

# bytes of activations, forward and backward, that a block of chains may take; on a GPU a quarter of its memory
BUDGET = 2 * 2**30
# gradients: torch's compiler takes some ten seconds and saves about a millisecond of each, on small networks
PAYS = 5000
WRITTEN = 1500  # gradients: code of our own, of networks that it is for, is made in a second or two
RECORDED = 200  # gradients: what it takes to have a GPU's kernels recorded is that of some ten


def drive(method: Iterative, target: Target, start: Start, run: Run) -> Posterior:
    target = method.view(target, run.noise)
    ends = start.ends if start.ends is not None else method.begin(target.model, start, run.noise)
    mask = method.moves(target.model.prior, target.only)
    if target.only is not None:
        mask = mask & target.only
        target = replace(target, centred=True)  # non-centred, a fixed weight would follow a scale that moves
        if start.ends is None:  # what stays fixed stays where the network has it
            own = from_network(target.model, Start(start.chains), run.noise).theta
            ends = ends._replace(theta=torch.where(mask.to(own.device), ends.theta, own))
    if not bool(mask.any()):
        raise InputError(
            "a method needs something to move", f"nothing left for {method!r}", "check the pattern of .on(...)"
        )
    target = target.free(mask, ends.theta)
    batch = method.batch(target.source)
    width, most_rows = room(target, batch)
    width, target = width if method.separable() else 1, replace(target, most_rows=most_rows)
    parts = []
    for first in range(0, start.chains, width):
        block = slice(first, first + width)
        own = Ends(ends.theta[block], {name: b[block] for name, b in ends.statistics.items()})
        share = (first / start.chains, len(own.theta) / start.chains)
        parts.append(drive_block(method, target.chains(block), own, batch, run.at("block", first), share))
    return join(parts)


def drive_block(
    method: Iterative, target: Target, ends: Ends, batch: int, run: Run, share: tuple[float, float]
) -> Posterior:
    chains, per_epoch = len(ends.theta), -(-target.size // batch)
    bounds = [i * target.size // per_epoch for i in range(per_epoch + 1)]  # even batches: no ragged last one
    total = method.steps(per_epoch)
    state = method.init(target, ends, run.noise.at("init"))
    target = coded(target, total * method.gradients(), chains * batch, run.compile)
    if run.folder is None:
        record: Record = Held()
    else:
        record = Stored(run.folder, run.noise, method.freeze(state), method.keep(target, state))
    order, told, began = None, 0.0, record.code
    all_rows = batch == target.size and target.shards(target.batch(None)) == 1
    strides = target.code is not None and all_rows and ends.theta.device.type == "cpu"
    with record:
        if record.step:
            state = method.thaw(record.tree, state)
        step, stop = record.step, False
        method.sound(state, step)
        while step < total and not stop:
            epoch, position = divmod(step, per_epoch)
            if batch < target.size and (order is None or position == 0):
                order = run.noise.at("epoch", epoch).permutations(chains, target.size)
            index = None if order is None else order[:, bounds[position] : bounds[position + 1]]
            batch_now = target.batch(index)._replace(part=step / total, closes=position + 1 == per_epoch)
            count = min(method.together(step, target.work(chains)), total - step) if strides else 0
            if count:
                noises = [run.noise.at("step", step + i) for i in range(count)]
                state, states, infos = method.several(target, state, batch_now, noises)
            else:
                state, info = method.step(target, state, batch_now, run.noise.at("step", step))
                states, infos = [state], [] if info is None else [info]
            for i, info in enumerate(infos):
                method.remember(record.infos, step + i, info)
            stop = method.finished(state)
            for i, after in enumerate(states):
                if method.keeps(step + i, total) or (stop and not record.count):
                    record.keep(step + i, method.keep(target, after))
            step += len(states)
            if record.due(stop or step == total):  # one that stops early has no step left, either
                record.code, _ = made(target, began)
                record.save(total if stop else step, method.freeze(state))
            if time.monotonic() - told < 0.1 and step < total:
                continue
            told = time.monotonic()
            method.sound(state, step)
            if run.progress is not None:
                done = int(1000 * (share[0] + share[1] * step / total))
                run.progress(Progress(type(method).__name__, done, 1000, summary(record.infos)))
        record.code, changed = made(target, began)
        posterior = method.posterior(target, record.states(method.keep(target, state)), record.infos)
    if "compiled" in record.code:
        posterior.info["compiled"] = record.code["compiled"]
    notes = [note for note in (record.note, changed) if note]
    if notes:
        posterior.info["note"] = "; ".join(notes)
    return posterior


def coded(target: Target, gradients: float, work: int, wanted: bool | None) -> Target:
    """With machine code for so many gradients of so many chains and rows, where that pays: a rule that looks at nothing but the call."""
    heavier = max(1.0, work / 10_000)  # than a gradient that costs nothing but its overhead
    compiler = gradients * heavier >= PAYS if wanted is None else wanted
    least = WRITTEN if target.model.network.like.device.type == "cpu" else RECORDED
    return (
        replace(target, code={}, compiler=compiler) if compiler or (wanted is None and gradients >= least) else target
    )


def made(target: Target, before: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Whether gradients are machine code, or why not, and by what it was made; and whether that is new in a run that was resumed."""
    if not target.code:  # nobody asked, or a finished run is read back; a method may have no use for it
        return before, ""
    compiled = next((code.note for code in target.code.values() if code.note is not None), True)
    by = sorted(set().union(*(code.made for code in target.code.values())))
    new = set(by) - set(before.get("made", by))
    said = f"code by {' and '.join(sorted(new))}, where the run had begun with {' and '.join(before.get('made', []))}"
    note = f"{said}: right, but not to the last bit what it would have been" if new else ""
    return {"compiled": compiled, "made": by}, note


def room(target: Target, batch: int) -> tuple[int, int]:
    """What memory allows: how many chains share one call (one where the network does not vectorise), and how many rows."""
    x, _ = target.source.rows(torch.arange(min(2, target.size)))
    network = target.model.network
    device, per_row = network.like.device, 3 * network.bytes_per_point(x)
    budget = torch.cuda.get_device_properties(device).total_memory // 4 if device.type == "cuda" else BUDGET
    most_rows = max(1, budget // per_row)
    if not network.vectorises(x, training=True):
        return 1, most_rows
    return max(1, budget // (batch * per_row + 8 * target.model.dim * 4)), most_rows


def join(parts: Sequence[Posterior]) -> Posterior:
    """Blocks of chains as one posterior: draws into draws, parametric ones into a mixture."""
    if len(parts) == 1:
        return parts[0]
    info: dict[str, Any] = {"blocks": [part.info for part in parts]}
    draws = [part for part in parts if isinstance(part, Draws)]
    if len(draws) == len(parts):
        return Draws.join(draws, info)
    return Mixture(parts, info)


def summary(infos: Sequence[Any]) -> dict[str, float]:
    """The newest diagnostics, averaged over chains, for a progress bar."""
    if not infos:
        return {}
    return {name: float(x.float().mean()) for name, x in infos[-1]._asdict().items() if isinstance(x, Tensor)}
