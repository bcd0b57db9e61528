"""What is said of workers that were lost, and advised, by what proves how they ended."""

from __future__ import annotations

from collections import Counter

from dasfprof.analysis.model.memory_kills import Certainty, MemoryKill, Reason
from dasfprof.analysis.run.worker_exits import Departure, Why

#: The share of its limit that a process has to have left unused to be far from it: between samples
#: it may take as much as it had.
_FAR = 0.5
#: What ended workers, behind a noun and its verb.
_CLAUSES = {
    Why.SILENT: "given up by the scheduler, as no heartbeat came for longer than "
    "distributed.scheduler.worker-ttl",
    Why.MEMORY: "killed as memory ran out",
    Why.CRASH: "killed by a crash",
    Why.ERROR: "lost just after an error that Dask logged there",
    Why.STATUS: "lost as the process ended by itself",
    Why.UNKNOWN: "killed or lost, by what the trace does not tell",
}
#: What those of Dask's own tasks do whose names have a word, where they need too much memory.
_OF_DASK = {
    "parquet": " A partition that is read from Parquet has one row group of a file at least: where "
    "that is too large, write smaller ones (row_group_size=); split_row_groups=True has one in "
    "each.",
    "rechunk": " A task of a rechunk puts chunks together: one that has all of an axis is as large "
    "as all of them. Let that axis have several chunks, or cut the others smaller in return.",
    "repartitiontofewer": " Such a task puts partitions of a dataframe together: compute() has all "
    "of them put together on one worker, repartition() as many as it is told. Reduce the frame "
    "first, write it from the tasks (to_parquet()), or fetch the partitions: "
    "dask.compute(*frame.to_delayed()).",
}


def clause(departures: list[Departure]) -> str:
    """Say in a few words what ended workers: how many so, where it was not the same for all."""
    whys = Counter(one.why for one in departures).most_common()
    if len(whys) == 1:
        return _CLAUSES[whys[0][0]]
    return ", or ".join(f"{_CLAUSES[why]} ({number})" for why, number in whys)


def in_words(departure: Departure) -> str:
    """Say how a worker ended, with all that is known of its end; empty where nothing is."""
    parts = filter(None, (departure.words, departure.evidence))
    return "; ".join(parts)


def suspicion(kill: MemoryKill) -> str:
    """Say which function took the memory of a worker that died of it, and how sure that is."""
    what = "The results of" if kill.reason is Reason.RESULTS else ""
    took = f"{what} {kill.suspect} took the memory".strip()
    sure = "" if kill.certainty is Certainty.CERTAIN else f", {kill.certainty.value}"
    return f"{took}{sure}: {kill.reason.value}. See died_of_memory(). "


def advice(departure: Departure, function: str | None, *, fills: bool = False) -> str:
    """Say what to do about workers that ended so, on which a function ran.

    `fills`: it was the function's results that filled the memory.
    """
    name = function or "the task"
    if departure.why is Why.SILENT:
        return (
            f"If {name} holds the GIL (in C code), let it release it, or call it in a subprocess; "
            "or raise distributed.scheduler.worker-ttl above the longest time for which it holds "
            "the worker up. `py-spy dump --pid` shows what a silent worker does."
        )
    if departure.why is Why.MEMORY and fills:
        return (
            f"Let fewer results of {name} be held at a time: reduce or write them in the tasks, "
            "drop futures that nobody needs, or have more workers; and let Dask spill, where "
            "distributed.worker.memory.target or .spill is off."
        )
    if departure.why is Why.MEMORY:
        return (
            "Let less memory be held at a time: fewer threads a worker, so that fewer tasks such "
            f"as {name} run side by side, smaller chunks, or a higher memory_limit. How much "
            f"{name} needs is unknown, as it was killed on the way: what it had then is the least."
            + next((more for word, more in _OF_DASK.items() if word in name), "")
        )
    if departure.why is Why.CRASH:
        return (
            f"Run {name} alone with PYTHONFAULTHANDLER=1: the stack that this prints names the "
            "library that crashes."
        )
    if departure.why is Why.ERROR:
        return (
            f"Mend {departure.error} on the workers: their log has its traceback. What is sent to "
            "them is unpickled there, and needs the modules, of the same versions, that it is of."
        )
    if departure.why is Why.STATUS:
        return (
            f"Look for sys.exit() or os._exit() in {name} and its libraries, and at what the "
            "process printed last."
        )
    far = (
        " Nothing says that memory ran out: it was far from its limit."
        if departure.memory < _FAR * departure.limit
        else ""
    )
    return (
        "The trace cannot tell what ended it. The kernel's log (dmesg) tells of kills for want of "
        "memory, the log of a batch system, of Kubernetes (kubectl describe pod) or of a cloud of "
        f"theirs, the worker's own log of its errors.{far}"
    )
