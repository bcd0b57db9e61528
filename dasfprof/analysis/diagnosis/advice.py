"""What findings advise: which of it other findings refute, and what of it is a setting.

What a rule advises is right by what that rule knows. All findings together know more: more threads
gain nothing where memory ran out, or where there is no task for them. So all of them are read
together, and what they refute is not advised: the reason takes its place.

Where the words of a rule are a setting, it stands here as well, as data that a program can try, by
the finding's figures: nothing that its words do not say, and nothing where others refuted it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from dasfprof.analysis.diagnosis.registry import Ranked
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.transfers import p2p_runs
from dasfprof.analysis.wording import Statement

logger = logging.getLogger(__name__)

# --- Which advice other findings refute ----------------------------------------------------------

#: Kinds of advice: how to say that one is none, and by what it is refuted: the rule of another
#: finding, other advice that stands (the kind's name), or a fact of `_facts`, each with the reason.
_REFUTED_BY: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "more-threads": (
        "More threads a worker would gain nothing",
        {
            "died-of-memory": "memory ran out on a worker",
            "killed-workers": "workers died with the tasks that they ran",
            "memory-pressure": "workers paused, as their memory was nearly full",
            "memory-near-limit": "a worker came near its memory limit",
            "spilling": "workers spill for want of memory",
            "host-memory-full": "a host ran out of memory",
            "process-lock": "tasks wait for one lock of their process",
            "cluster-lock": "tasks wait for a lock of Dask's",
            "resource-limit": "tasks wait for units of a resource, not for threads",
            "waits-for-tasks": "tasks keep their threads while they wait for others",
            "waits-in-turn": "tasks wait for something that serves one at a time",
            "lock-bound": "threads of one process keep each other waiting",
            "cpu-oversubscribed": "tasks wait for cores",
            "no-workers": "workers were missing, not threads",
            "one-at-a-time": "the client submits fewer tasks at a time than there are threads",
            "client-gaps": "the cluster waits for the client",
            "too-few-tasks": "there are fewer tasks than threads",
            "serial-chain": "tasks run one after another",
            "poor-placement": "threads idle while tasks queue on other workers",
            "imbalance": "threads idle while others work",
        },
    ),
    "share-memory": (
        "Workers with more threads would move less, and wait more",
        {
            "process-lock": "tasks wait for one lock of their process",
            "lock-bound": "threads of one process keep each other waiting",
        },
    ),
    "fewer-threads": (
        "Fewer threads would gain nothing",
        {
            "more-threads": "tasks wait without using a core, and more of them could",
        },
    ),
    "move-data": (
        "Where these run cannot be changed by client.rebalance() or workers=",
        {"p2p": "a P2P shuffle decides which worker has which of its outputs"},
    ),
}


def consistent(findings: Sequence[Ranked], run: RunFigures) -> list[Ranked]:
    """Return findings without advice that the others refute.

    Kinds come in the order of the table: what is refuted refutes nothing itself.
    """
    kept, facts = list(findings), _facts(run)
    for kind, (none, reasons) in _REFUTED_BY.items():
        advised = {advice.kind for one in kept for advice in one.finding.said.advice}
        known = {*facts, *(one.rule for one in kept), *advised}
        kept = [_without(one, kind, none, reasons, known) for one in kept]
    return kept


def _without(
    one: Ranked, kind: str, none: str, reasons: Mapping[str, str], known: Collection[str]
) -> Ranked:
    finding = one.finding
    why = [word for name, word in reasons.items() if name in known and name != one.rule]
    for advice in finding.said.advice if why else ():
        if advice.kind != kind:
            continue
        seconds = float("nan") if advice.promises else finding.seconds
        said = finding.said.without(advice, f"{none}: {why[0]}.")
        finding = dataclasses.replace(finding, said=said, seconds=seconds)
    return dataclasses.replace(one, finding=finding)


def _facts(run: RunFigures) -> set[str]:
    """Return what of a run refutes advice and is no finding."""
    times, rows = run.slots.times, p2p_runs(run.trace)
    queued = (times.executing - times.ready)[: len(rows)]
    # What queues on workers is mostly of shuffles.
    of_p2p = rows.any() and queued[rows].sum() >= 0.5 * queued.sum()
    facts = {"p2p": of_p2p, "died-of-memory": run.died_of_memory}
    return {name for name, is_so in facts.items() if is_so}


# --- What is a setting ----------------------------------------------------------------------------

#: A number, a switch, a text, or a word of `MORE` and `FEWER`.
Value: TypeAlias = int | bool | str

#: Values of settings of which the words say no number.
MORE, FEWER = "more", "fewer"
#: Settings that are keywords of a ``LocalCluster``.
OF_CLUSTERS = ("n_workers", "threads_per_worker", "processes", "memory_limit")
#: Settings that only the program's own code can have.
OF_PROGRAMS = ("chunks", "batch", "persist")
#: Variables that keep libraries from starting threads of their own, where they are 1; and cores
#: from which on other programs are to blame.
LIMITS, BLAMED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 0.5


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


def _cluster(**settings: Value) -> Change:
    """Return a change of the cluster, whose other keywords are to stay."""
    return Change(settings, tuple(name for name in OF_CLUSTERS if name not in settings))


def _processes(f: Any, _said: Statement, run: RunFigures) -> list[Change]:
    """So many times as many workers of one thread."""
    lock = "they wait for the interpreter's lock" if f.sampled is None else ""
    workers = int(f.threads) * _workers(run)
    found = _cluster(n_workers=workers, threads_per_worker=1, processes=True)
    return [dataclasses.replace(found, condition=lock)]


def _more_threads(f: Any, said: Statement, _run: RunFigures) -> list[Change]:
    number = getattr(f, "more_threads", None)
    threads = MORE if number is None else int(number)
    return [_cluster(threads_per_worker=threads)] if _advises(said, "more-threads") else []


def _share_memory(_f: Any, said: Statement, run: RunFigures) -> list[Change]:
    if not _advises(said, "share-memory") or _workers(run) < 2:
        return []
    return [_cluster(n_workers=FEWER, threads_per_worker=MORE)]


def _cpu_oversubscribed(f: Any, _said: Statement, run: RunFigures) -> list[Change]:
    if f.cores is not None:
        return []  # fewer threads gain nothing by themselves
    if f.own_threads:
        names = LIMITS if f.unlimited is None else f.unlimited
        return [Change(dict.fromkeys(names, "1"), ("threads_per_worker",))] if names else []
    cores = float(sum(run.trace.surroundings.cores.values()))
    if not cores:
        return _fewer_threads(run)  # no trace tells how many there are
    others = f.other_programs.cores if f.other_programs is not None else 0.0
    workers, most = _workers(run), max(int(cores - (others if others >= BLAMED else 0.0)), 1)
    fewer: dict[str, Value] = {"n_workers": most} if workers > most else {}
    return [_cluster(threads_per_worker=max(most // workers, 1), **fewer)]


def _fewer_threads(run: RunFigures) -> list[Change]:
    several = np.median(run.accounts.lives.threads) >= 2
    return [_cluster(threads_per_worker=FEWER)] if several else []


def _advises(said: Statement, kind: str) -> bool:
    return any(advice.kind == kind for advice in said.advice)


def _workers(run: RunFigures) -> int:
    """Return how many workers there were; one that was restarted is the same."""
    return len(np.unique(run.workers.of_lives[run.accounts.lives.ids]))


# --- memory ---------------------------------------------------------------------------------------


def _memory_limit(f: Any, _said: Statement, _run: RunFigures) -> list[Change]:
    return [] if f.wanted is None or f.at_the_least else [_cluster(memory_limit=int(f.wanted))]


def _memory_pressure(_f: Any, _said: Statement, run: RunFigures) -> list[Change]:
    return [_cluster(memory_limit=MORE), *_fewer_threads(run)]


# --- what the program has: chunks, batches, persist -----------------------------------------------


def _tasks_too_small(f: Any, said: Statement, run: RunFigures) -> list[Change]:
    advice = f.advice
    if f.dear or advice.how == "more-work":
        return []
    if advice.how == "fewer-steps":
        return _fewer_threads(run) if _advises(said, "fewer-threads") else []
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
    saturation = Change({"distributed.scheduler.worker-saturation": "1.0"})
    return [saturation] if f.queued and f.blocked is None else []


def _recomputation(f: Any, _said: Statement, _run: RunFigures) -> list[Change]:
    line = getattr(f, "built_at", None)
    return [Change({"persist": line or f.function}, function=f.function, line=line)]


_CHANGES: Mapping[str, _Maker] = {
    "process-lock": _processes,
    "lock-bound": _processes,
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
