"""What Dask takes for the things around tasks, as a run measured it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.predecessors import last_slots
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.model.slots import TaskSlots
from dasfprof.database.columns import Array

#: Where a trace tells nothing: seconds that the scheduler takes for a task, and that a message is
#: on its way; bytes a second, which is Dask's own first guess.
_USUAL_TASK, _USUAL_LATENCY, _USUAL_BANDWIDTH = 0.0003, 0.001, 100e6
#: Transfers up to here take no time for their bytes.
_SMALL = 100_000
#: No latency counts as more of the median one, and no time that the scheduler takes: it did
#: something else then.
_LONGEST, _LONGEST_GAP = 20.0, 3.0
#: So many of a kind tell a cost.
_ENOUGH = 10


@dataclass(frozen=True)
class Costs:
    """Seconds, and bytes a second."""

    #: From the scheduler's sending a task until its worker knows of it. As all messages, it waits
    #: until the one before is 2 ms old, and for both processes' event loops.
    to_worker: float
    #: From a worker's knowing an outcome until the scheduler does.
    to_scheduler: float
    #: For which a finished task, and what follows from it, keeps the scheduler.
    scheduler: float
    #: From a task's being ready until a free thread has it.
    start: float
    #: For which a message with dependencies takes beside their bytes.
    transfer: float
    bandwidth: float


def measure_costs(run: Run, slots: TaskSlots) -> Costs:
    """Measure the costs of a run; where it tells nothing, they are usual ones.

    Latencies are means, as chains of tasks add them up.
    """
    tasks, count = run.ended.tasks, len(run.ended.tasks)
    received, done, known = (getattr(slots.times, x)[:count] for x in ("received", "done", "known"))
    scheduled = np.full(count, "sent" in tasks)
    if "sent" in tasks:
        scheduled &= tasks["sent"].notna().to_numpy()
    worker_told = tasks["received"].notna().to_numpy() & scheduled
    done_told = tasks["done"].notna().to_numpy() & scheduled
    to_worker = _mean(received[worker_told] - slots.sent[:count][worker_told], _USUAL_LATENCY)
    done, known = done[done_told], known[done_told]
    to_scheduler, scheduler = _from_workers(done, known)
    executing, ready = slots.times.executing, slots.times.ready
    free = (last_slots(slots, executing, ready) < 0)[:count]
    free &= tasks["ready"].notna().to_numpy() & tasks["executing"].notna().to_numpy()
    waits = (executing - ready)[:count][free]
    transfer, bandwidth = _transfers(run)
    return Costs(
        to_worker=to_worker,
        to_scheduler=to_scheduler,
        scheduler=scheduler,
        start=_mean(waits, 0.0),
        transfer=transfer,
        bandwidth=bandwidth,
    )


def _mean(values: Array, usual: float, longest: float = _LONGEST) -> float:
    """Average latencies; none counts as more than so many medians: single pauses are no rule."""
    if not len(values):
        return usual
    return float(np.mean(np.minimum(values, longest * np.median(values))))


def _from_workers(done: Array, known: Array) -> tuple[float, float]:
    """Measure the latency of finishes, and for how long each keeps the scheduler.

    The latency is that of messages that did not wait for another one; where they did, the time
    from one to the next is what the scheduler takes.
    """
    order = np.argsort(known, kind="stable")
    done, known = done[order], known[order]
    before = np.append(-np.inf, known)[:-1]
    alone = (known - done)[before <= done]
    latency = _mean(alone if len(alone) >= _ENOUGH else known - done, _USUAL_LATENCY)
    gaps = (known - before)[done + latency < before]
    if len(gaps) < _ENOUGH:
        return latency, min(_USUAL_TASK, latency)
    return latency, _mean(gaps, _USUAL_TASK, _LONGEST_GAP)


def _transfers(run: Run) -> tuple[float, float]:
    """Measure the latency of transfers, and their bandwidth beyond it."""
    table = run.trace.transfers
    if "size" not in table or not len(table):
        return _USUAL_LATENCY, _USUAL_BANDWIDTH
    brought = (table["state"].isna() | (table["state"] == "success")).to_numpy(dtype=bool)
    size, seconds = table["size"].to_numpy(dtype=float), table["duration"].to_numpy(dtype=float)
    told = brought & np.isfinite(size) & np.isfinite(seconds) & (seconds >= 0)
    size, seconds = size[told], seconds[told]
    small = size <= _SMALL
    latency = _mean(seconds[small], _USUAL_LATENCY)
    if small.all():
        return latency, _USUAL_BANDWIDTH
    beyond = np.maximum(seconds[~small] - latency, 0.1 * seconds[~small]).sum()
    return latency, float(size[~small].sum() / beyond) if beyond > 0 else _USUAL_BANDWIDTH
