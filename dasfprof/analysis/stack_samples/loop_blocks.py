"""`loop_blocks`: times when event loops were blocked, and what their threads were doing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.numeric.intervals import overlap, union
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import all_stacks, import_of, line_of
from dasfprof.analysis.stack_samples.spent import LOCK, WAITING, Samples
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.analysis.under_way.state import Frame, Stack
from dasfprof.database.columns import Array

#: Functions in which an event loop waits for work.
_IDLE = ("select", "EpollSelector.select", "KqueueSelector.select", "_poll", "poll")
#: Minimum fraction of a block's time in one activity, which then counts as the cause.
_MOST = 0.5


@dataclass(frozen=True)
class LoopBlock:
    """A time range in which an event loop was blocked."""

    worker_id: int
    #: Unix seconds. Start: the last time at which the loop was running. Stop: the time at which it
    #: was seen running again, or else the last time at which it was seen blocked.
    start: float
    stop: float
    #: Whether the loop was seen running again.
    ended: bool
    #: Line that the loop's thread executed in most samples, and the library's call in this line.
    #: The line is None if the thread was not at work in any sample.
    line: Frame | None
    inside: str
    #: Library that was being imported, or None.
    imported: str | None
    #: Cause: ``working``; ``no core`` if the thread was waiting for CPU; ``lock`` if it was waiting
    #: for the GIL; ``waiting`` if it was in a call that waits; or ``unknown``.
    cause: str
    samples: int


@once_per_trace
def loop_blocks(run: Run) -> list[LoopBlock]:
    """Return the time ranges in which event loops were blocked, longest first."""
    table = run.loop_samples.sort_values("time", kind="stable")
    stacks, blocks = list(map(in_the_loop, all_stacks(run))), []
    for _, rows in table.groupby(["worker_id", "since"]):
        ended = np.isfinite(rows["until"].to_numpy(dtype=float))
        samples = Samples.from_table(rows[~ended])
        if len(samples):
            stop = rows["until"][ended].min() if ended.any() else samples.time.max()
            when = float(rows["since"].iloc[0]), float(stop), bool(ended.any())
            blocks.append(_block(int(rows["worker_id"].iloc[0]), when, samples, stacks))
    return sorted(blocks, key=lambda block: block.start - block.stop)


def in_the_loop(stack: Stack) -> Stack:
    """Return the frames of the callback that an event loop was running, or else all frames."""
    for place in range(len(stack) - 1, -1, -1):
        frame = stack[place]
        if frame.function.endswith("_run") and frame.file.endswith("asyncio/events.py"):
            return stack[place + 1 :]
    return stack


def _block(
    worker: int, when: tuple[float, float, bool], samples: Samples, stacks: list[Stack]
) -> LoopBlock:
    weights: dict[int, float] = {}
    for stack, seconds in zip(samples.stack.tolist(), samples.interval.tolist(), strict=True):
        if stack >= 0 and stacks[stack] and stacks[stack][-1].function not in _IDLE:
            weights[stack] = weights.get(stack, 0.0) + seconds
    cause = _cause(samples, sum(weights.values()))
    if not weights:
        return LoopBlock(worker, *when, None, "", None, cause, len(samples))
    longest = stacks[max(weights, key=lambda stack: weights[stack])]
    return LoopBlock(worker, *when, *line_of(longest), import_of(longest), cause, len(samples))


def _cause(samples: Samples, at_work: float) -> str:
    total = samples.interval.sum()
    if not total > 0:
        return "unknown"
    counted = samples.interval[np.isfinite(samples.cpu)].sum()
    if counted > 0 and np.nansum(samples.run_queue) >= _MOST * counted:
        return "no core"
    locked, waiting = (
        samples.interval[samples.activity == activity].sum() for activity in (LOCK, WAITING)
    )
    is_busy = counted > 0 and np.nansum(samples.cpu) >= _MOST * counted
    if not is_busy and locked >= _MOST * total:
        return "lock"
    if at_work < _MOST * total:  # The loop was about to continue.
        return "unknown"
    return "waiting" if waiting >= _MOST * total else "working"


#: Threshold (seconds): a loop with this delay counts as blocked. Dask's own handlers take less.
_BLOCKED = 0.1


@once_per_trace
def blocked_on_the_way(run: Run) -> Array:
    """Return how long each task run was in transit while its worker's event loop was blocked.

    The seconds are in the order of the rows of `TaskSlots`. Unknown values are 0.
    """
    slots = run.slots
    seconds = np.zeros(len(slots.worker))
    memory = run.managed_memory
    lag, worker = memory["loop_lag"].to_numpy(dtype=float), memory["worker_id"].to_numpy()
    time = run.on_one_clock(memory["time"], worker)
    late = lag >= _BLOCKED
    for number in np.unique(worker[late]).tolist():
        late_samples = late & (worker == number)
        blocked = union(time[late_samples] - lag[late_samples], time[late_samples])
        rows = np.flatnonzero((slots.worker == number) & ~slots.reception_unknown)
        seconds[rows] = overlap(slots.sent[rows], slots.times.received[rows], *blocked)
    return seconds


def imports_on_the_way(run: Run) -> tuple[Array, dict[str, float]]:
    """Return how long each task run was in transit while its worker's event loop was importing.

    The seconds are in the order of the rows of `TaskSlots`. The second value contains the seconds
    of these imports by library.
    """
    slots, libraries = run.slots, dict[str, float]()
    imported = np.zeros(len(slots.worker))
    for block in loop_blocks(run):
        if block.imported is None or block.worker_id < 0:
            continue
        rows = np.flatnonzero((slots.worker == block.worker_id) & ~slots.reception_unknown)
        begin, end = run.on_one_clock([block.start, block.stop], [block.worker_id] * 2)
        spans = np.array([begin]), np.array([end])
        met = overlap(slots.sent[rows], slots.times.received[rows], *spans)
        imported[rows] += met
        if met.any():
            libraries[block.imported] = libraries.get(block.imported, 0.0) + float(end - begin)
    return imported, libraries
