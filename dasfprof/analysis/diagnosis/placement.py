"""Rules about tasks that are ready on busy workers while threads of others idle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.steps import distinct_annotations
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.stack_samples.loop_blocks import blocked_while_ready
from dasfprof.analysis.wording import Advice, Count, Figures, Share, Words
from dasfprof.database.columns import Array

#: The share of the threads' time for which they idle while tasks are ready elsewhere.
_ELSEWHERE = 0.1
#: The part of all waiting that has to be of tasks that asked for workers, have inputs, or had
#: waited at the scheduler.
_MOSTLY = 0.5
#: The share of it for which event loops did not answer that is told.
_BLOCKED = 0.2
#: By which tasks ask for workers.
_ASKS = ("workers", "resources")


@dataclass(frozen=True)
class _Queues:
    """The tasks that were ready on workers and had no thread."""

    run: RunFigures

    @cached_property
    def waits(self) -> Array:
        """For how long each task run was ready."""
        times = self.run.slots.times
        return np.asarray((times.executing - times.ready)[: len(self.run.trace.tasks)])

    @property
    def crowded(self) -> str:
        """The worker with the longest queues."""
        workers, lives = self.run.trace.workers, self.run.accounts.lives
        slots = self.run.slots
        weights = slots.times.executing - slots.times.ready
        waits = np.bincount(slots.worker, weights=weights, minlength=len(workers))[lives.ids]
        return str(workers["worker"].to_numpy()[lives.ids[int(waits.argmax())]])

    @cached_property
    def asked(self) -> bool | None:
        """Whether most of them asked for workers; None: unknown."""
        places, values = distinct_annotations(self.run.trace)
        if not values or not all(isinstance(one, dict) for one in values):
            return None
        asks = [isinstance(one, dict) and not one.keys().isdisjoint(_ASKS) for one in values]
        return self._mostly(np.array(asks)[places])

    @property
    def with_inputs(self) -> bool:
        """Whether most of them have inputs."""
        return self._mostly(self.run.trace.task_dependencies[0] > 0)

    @property
    def queued(self) -> bool:
        """Whether most of them had waited at the scheduler for a worker that has room."""
        return self._mostly(np.isfinite(self.run.task_column("queued")))

    @property
    def sent_ahead(self) -> bool:
        """Whether nothing but the scheduler's own choice had them wait where they did."""
        return self.asked is False and not self.with_inputs

    def _mostly(self, rows: Array) -> bool:
        return bool(self.waits[rows].sum() >= _MOSTLY * self.waits.sum())


def _found(run: RunFigures) -> _Queues | None:
    share = run.share_of(ThreadTime.RUNNABLE_ELSEWHERE)
    return _Queues(run) if share >= _ELSEWHERE and len(run.trace.tasks) else None


def _figures(run: RunFigures, queues: _Queues) -> dict[str, Any]:
    crowded = queues.crowded
    return {
        "idle": Share(run.share_of(ThreadTime.RUNNABLE_ELSEWHERE)),
        "crowded": crowded,
        "stolen": Count(len(run.trace.steals)),
        "worker": crowded,
    }


@rule("poor-placement")
def poor_placement(run: RunFigures) -> Iterator[Finding]:
    """Find threads that idle while tasks queue on workers that they asked for, or with inputs."""
    queues = _found(run)
    if queues is None or queues.sent_ahead:
        return
    yield Finding.of(
        _say_poor_placement,
        **_figures(run, queues),
        asked=queues.asked,
        seconds=run.seconds_of(ThreadTime.RUNNABLE_ELSEWHERE),
    )


def _say_poor_placement(f: Figures) -> Words:
    spread = "the data that they need, by client.rebalance() or client.replicate()."
    return (
        f"Tasks queue on busy workers while others idle: {f.idle} of the threads' time.",
        f"The longest queues are on {f.crowded}; work stealing moved {f.stolen:task}. "
        + (
            "Few of them asked for a worker: they wait where inputs are. "
            if f.asked is False
            else ""
        )
        + 'See time_accounting("worker") and transfers("worker").',
        [
            Advice("move-data", f"Spread {spread}")
            if f.asked is False
            else Advice(
                "move-data",
                "Let these tasks run anywhere: drop workers= and resources= or give "
                f"allow_other_workers=True; spread {spread}",
            ),
            "Keep distributed.scheduler.work-stealing on.",
        ],
    )


@rule("sent-ahead")
def sent_ahead(run: RunFigures) -> Iterator[Finding]:
    """Find threads that idle while tasks that could run anywhere wait behind others on a worker."""
    queues = _found(run)
    if queues is None or not queues.sent_ahead:
        return
    waits, blocked = queues.waits, blocked_while_ready(run.trace)[: len(queues.waits)]
    share = float(blocked.sum()) / float(waits.sum())
    yield Finding.of(
        _say_sent_ahead,
        **_figures(run, queues),
        queued=queues.queued,
        blocked=Share(share) if share >= _BLOCKED else None,
        costs=run.seconds_of(ThreadTime.RUNNABLE_ELSEWHERE),
        at_most="medium",
    )


def _say_sent_ahead(f: Figures) -> Words:
    blocked = (
        f"For {f.blocked} of that the event loop of their worker did not answer: nothing can be "
        "stolen from it then. "
        if f.blocked is not None
        else ""
    )
    return (
        "Tasks wait behind others on their workers, though they could run anywhere, while threads "
        f"elsewhere idle: {f.idle} of the threads' time.",
        f"The longest queues are on {f.crowded}; work stealing moved {f.stolen:task}. Few of them "
        f'asked for a worker or have inputs. {blocked}See time_accounting("worker").',
        (
            "Let code that holds the GIL for long release it, or run it in a process of its own. "
            if blocked
            else ""
        )
        + (
            "The scheduler sends a worker more tasks than it has threads: "
            "distributed.scheduler.worker-saturation: 1.0 has them wait until one is free."
            if f.queued
            else "The scheduler chose their workers as they came, before it knew how long each "
            "takes: keep distributed.scheduler.work-stealing on."
        )
        + " Tasks that take far longer than others are best submitted first.",
    )
