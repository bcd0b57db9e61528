"""Refuters of what is said about how much of a run goes on side by side, and over its course."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refuters.evidence import Evidence, Rows
from refuters.registry import Said, differs, exceeds, fits, lies, refuter

#: Functions may get slower by chance.
_THIRDS = 1.05


#: The share of their time from which waits for cores are told of, and what is more than that.
_WAITED = 0.1
_MORE = 0.105


def needs_cores(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare what is said of cores, which more tasks at a time need, with waits for them."""
    told = said.figures_if_any("Tasks waited for a core for {share} of their time: more at a time")
    runs = evidence.runs
    share = float(runs.numbers("waited").sum() / max(runs.numbers("duration").sum(), 1e-9))
    if any(row["seceded"] is not None for row in runs):
        return  # those do not hold their threads for all of their time
    if told:
        yield from differs(told["share"], share, "the share of waits for a core")
    if share >= _MORE and not told:
        yield f"tasks waited for a core for {share:.3g} of their time, which is not said"
    if share < _WAITED and told:
        yield "tasks hardly waited for cores"


@refuter("serial-chain")
def serial_chain(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the time in which one task ran alone, and with what the chain is made of."""
    told = said.figures(
        "A chain of {count} tasks runs one after another: for {duration} ({share} of the run) no"
    )
    running = evidence.between("executing", "held")
    alone = running.where(lambda number: number == 1).integral()
    yield from exceeds(told["duration"], alone, "time with one task")
    yield from fits(told["share"], told["duration"], evidence.wall, "its share")
    yield from exceeds(told["count"], len(evidence.runs), "tasks")
    of_it = said.figures("{duration:part} of that in {name};")["part"]
    if not told["duration"].is_at_least(of_it.value - of_it.half):
        yield f"{of_it.text} are more than {told['duration'].text}"
    idle = evidence.idle.integral() / evidence.thread_seconds
    share = said.figures("nothing runnable for {share} of their time")["share"]
    yield from exceeds(share, idle, "idle threads")
    own = evidence.functions.get(str(said.function), Rows([]))
    if len(own) and not any(row["dependencies"] for row in own):
        yield f"no task of {said.function} has an input: they are no chain"
    yield from needs_cores(said, evidence)


@refuter("too-few-tasks")
def too_few_tasks(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the time in which threads idled."""
    told = said.figures("too few tasks for {count:threads} thread") | said.figures(
        "{duration:lost} of the run's {duration:wall} are lost as they idle, mostly while "
        "{count:runs} task"
    )
    if not any(
        abs(told["threads"].value - one) <= 0.51
        for one in (evidence.threads, evidence.threads_seen)
    ):
        yield f"there are {evidence.threads:.3g} threads"
    yield from lies(told["wall"], evidence.least_wall, evidence.wall, "seconds of the run")
    begin, end = evidence.span
    idle = evidence.idle.integral(begin, end) / evidence.threads
    yield from exceeds(told["lost"], idle, "idle threads, in seconds of the run")
    own = evidence.functions.get(str(said.function), Rows([]))
    yield from differs(told["runs"], len(own), f"tasks of {said.function}")
    share = said.figures("Nothing was runnable for {share} of the threads' time")["share"]
    yield from exceeds(share, evidence.idle.integral() / evidence.thread_seconds, "idle threads")
    advised = said.figures("into {count:times} times as many partitions ({count:tasks} tasks")
    if advised["tasks"].value != advised["times"].value * told["runs"].value:
        yield f"{advised['times'].text} times {told['runs'].text} are not {advised['tasks'].text}"
    chunks = said.figures_if_any("chunks of {size:new} in place of {size:old}")
    if chunks:
        sizes = np.fmax(own.numbers("size"), own.numbers("input_size"))
        yield from exceeds(chunks["old"], float(np.nanmax(sizes)), "the largest chunk")
    yield from needs_cores(said, evidence)


@refuter("degrading-functions")
def degrading_functions(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare the last third of a function's runs with the first."""
    told = said.figures("{name} gets slower as the run goes on: its last tasks take {factor} times")
    own = evidence.functions.get(str(said.function), Rows([]))
    own = own.where(lambda row: row["state"] in ("memory", None))
    number = said.figures("{count} attempt")["count"]
    yield from exceeds(number, len(own) + len(evidence.unseen), "attempts")
    third = len(own) // 3
    seconds = own.numbers("working")
    if third and seconds[-third:].mean() < _THIRDS * seconds[:third].mean():
        yield f"without waits for a core its last third takes {seconds[-third:].mean():.3g} s each"
    changes = said.figures_if_any("the last third by the first: seconds of the function {factor}")
    if changes and changes["factor"].text != told["factor"].text:
        yield f"{told['factor'].text} and {changes['factor'].text} are said of the same"
    lengths = own.numbers("duration")
    if third and not told["factor"].is_at_most(lengths.max() / lengths[:third].min()):
        yield f"no run took {told['factor'].text} times as long as one of the first did"
