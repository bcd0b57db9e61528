"""What findings advise, as settings: data that a program can try.

A rule says in words what to change. Where these words are a setting, it stands here as well, by the
finding's figures: nothing that its words do not say, and nothing where other findings refuted it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.wording import Statement

logger = logging.getLogger(__name__)

#: A number, a switch, a text, or a word of `MORE` and `FEWER`.
Value: TypeAlias = int | bool | str

#: Values of settings of which the words say no number.
MORE, FEWER = "more", "fewer"
#: Settings that are keywords of a ``LocalCluster``.
OF_CLUSTERS = ("n_workers", "threads_per_worker", "processes", "memory_limit")
#: Settings that only the program's own code can have.
OF_PROGRAMS = ("chunks", "batch", "persist")


@dataclass(frozen=True)
class Change:
    """What a finding's words say to set."""

    #: By name: keywords of a cluster (`OF_CLUSTERS`), variables of the environment, in capitals,
    #: settings of Dask's config, with dots, or what the program has (`OF_PROGRAMS`). Bytes are
    #: whole numbers.
    settings: Mapping[str, Value]
    #: Settings that are to stay: what is said, and promised, holds for them as they are.
    excludes: tuple[str, ...] = ()
    #: What the words make it depend on; empty: nothing.
    condition: str = ""
    #: Whose tasks it is about, and the line that built them, where it is the program's.
    function: str | None = None
    line: str | None = None
    #: How many times as large chunks or batches are then; None: it is about neither.
    times: float | None = None

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        data = {**asdict(self), "settings": dict(self.settings), "excludes": list(self.excludes)}
        return {**data, "condition": self.condition or None}


def changes_of(rule: str, said: Statement, run: RunFigures) -> list[Change]:
    """Return what a finding says to set: of several changes either, the best first.

    Parameters
    ----------
    rule
        Its rule.
    said
        What it says, without what other findings refuted.
    run
        The figures of the run.
    """
    find = _CHANGES.get(rule)
    if find is None:
        return []
    try:
        return find(SimpleNamespace(**said.figures), said, run)
    except (ValueError, OverflowError, AttributeError):  # absurd figures of a clock, or none
        logger.debug("no change of %s", rule, exc_info=True)
        return []


#: Makes the changes of a rule from the finding's figures.
_Maker: TypeAlias = Callable[[Any, Statement, RunFigures], list[Change]]

# --- threads and workers --------------------------------------------------------------------------


def _processes(f: Any, _said: Statement, run: RunFigures) -> list[Change]:
    """So many times as many workers of one thread."""
    workers = int(f.threads) * _workers(run)
    settings = {"n_workers": workers, "threads_per_worker": 1, "processes": True}
    return [Change(settings, _others(settings))]


def _lock_bound(f: Any, said: Statement, run: RunFigures) -> list[Change]:
    found = _processes(f, said, run)
    if f.sampled is None:
        condition = "they wait for the interpreter's lock"
        return [replace(one, condition=condition) for one in found]
    return found


def _more_threads(f: Any, said: Statement, _run: RunFigures) -> list[Change]:
    if not _advises(said, "more-threads"):
        return []
    number = getattr(f, "more_threads", None)
    settings: dict[str, Value] = {"threads_per_worker": MORE if number is None else int(number)}
    return [Change(settings, _others(settings))]


def _share_memory(_f: Any, said: Statement, run: RunFigures) -> list[Change]:
    if not _advises(said, "share-memory") or _workers(run) < 2:
        return []
    settings: dict[str, Value] = {"n_workers": FEWER, "threads_per_worker": MORE}
    return [Change(settings, _others(settings))]


def _cpu_oversubscribed(f: Any, _said: Statement, run: RunFigures) -> list[Change]:
    if f.cores is not None:
        return []  # fewer threads gain nothing by themselves
    if f.own_threads:
        names = _LIMITS if f.unlimited is None else f.unlimited
        return [Change(dict.fromkeys(names, "1"), ("threads_per_worker",))] if names else []
    cores = float(sum(run.trace.surroundings.cores.values()))
    if not cores:
        return _fewer_threads(run)  # no trace tells how many there are
    others = f.other_programs.cores if f.other_programs is not None else 0.0
    workers, most = _workers(run), max(int(cores - (others if others >= _BLAMED else 0.0)), 1)
    settings: dict[str, Value] = {"threads_per_worker": max(most // workers, 1)}
    if workers > most:
        settings["n_workers"] = most
    return [Change(settings, _others(settings))]


#: Variables that keep libraries from starting threads of their own, and cores from which on other
#: programs are to blame, as the rule says.
_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_BLAMED = 0.5


def _fewer_threads(run: RunFigures) -> list[Change]:
    settings: dict[str, Value] = {"threads_per_worker": FEWER}
    several = np.median(run.accounts.lives.threads) >= 2
    return [Change(settings, _others(settings))] if several else []


def _advises(said: Statement, kind: str) -> bool:
    return any(advice.kind == kind for advice in said.advice)


def _workers(run: RunFigures) -> int:
    """Return how many workers there were; one that was restarted is the same."""
    return len(np.unique(run.workers.of_lives[run.accounts.lives.ids]))


def _others(settings: Mapping[str, Value]) -> tuple[str, ...]:
    return tuple(name for name in OF_CLUSTERS if name not in settings)


# --- memory ---------------------------------------------------------------------------------------


def _memory_limit(f: Any, _said: Statement, _run: RunFigures) -> list[Change]:
    if f.wanted is None or f.at_the_least:
        return []
    settings: dict[str, Value] = {"memory_limit": int(f.wanted)}
    return [Change(settings, _others(settings))]


def _memory_pressure(_f: Any, _said: Statement, run: RunFigures) -> list[Change]:
    limit: dict[str, Value] = {"memory_limit": MORE}
    return [Change(limit, _others(limit)), *_fewer_threads(run)]


# --- what the program has: chunks, batches, persist -----------------------------------------------


def _tasks_too_small(f: Any, said: Statement, run: RunFigures) -> list[Change]:
    if f.dear:
        return []
    advice = f.advice
    if advice.how == "fewer-steps":
        return _fewer_threads(run) if _advises(said, "fewer-threads") else []
    if advice.how == "more-work":
        return []
    # Its chunks may be chosen in another function, whose line is not known here.
    line = getattr(f, "built_at", None) if advice.function == f.function else None
    settings: dict[str, Value] = (
        {"batch": int(advice.inputs)}
        if advice.how == "batches"
        else {"chunks": str(advice.new_chunks or advice.new_size)}
    )
    times = float(advice.inputs if advice.how == "batches" else advice.factor)
    return [Change(settings, function=advice.function, line=line, times=times)]


def _sent_ahead(f: Any, _said: Statement, _run: RunFigures) -> list[Change]:
    if not f.queued or f.blocked is not None:
        return []
    return [Change({"distributed.scheduler.worker-saturation": "1.0"})]


def _recomputation(f: Any, _said: Statement, _run: RunFigures) -> list[Change]:
    line = getattr(f, "built_at", None)
    return [Change({"persist": line or f.function}, function=f.function, line=line)]


_CHANGES: Mapping[str, _Maker] = {
    "process-lock": _processes,
    "lock-bound": _lock_bound,
    "blocked-tasks": _more_threads,
    "io-bound": _more_threads,
    "transfer-bound": _share_memory,
    "cpu-oversubscribed": _cpu_oversubscribed,
    "spilling": _memory_limit,
    "memory-near-limit": _memory_limit,
    "memory-pressure": _memory_pressure,
    "tasks-too-small": _tasks_too_small,
    "sent-ahead": _sent_ahead,
    "recomputation": _recomputation,
}
