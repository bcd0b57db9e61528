"""Refuters of findings about functions: dominant functions, warm-up, and work on single rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from refuters.cores import stacks_of
from refuters.evidence import Evidence, Rows
from refuters.figures import Claim, differs, exceeds, is_close, lies
from refuters.registry import refuter

#: Functions that iterate over rows or values of a column or array, or get a value of a row.
_ONE_BY_ONE = {
    *("apply_series_generator", "series_generator", "iterrows", "_get_value", "__getattr__"),
    *("map_array", "_vectorize_call", "_vectorize_call_with_signature", "apply_along_axis"),
    *("generic_filter", "_get_lines", "_rows_to_cols", "_convert_data", "genfromtxt", "parse"),
}
#: Threshold (ratio to the median size): tasks with larger data do more than others.
_MORE_DATA = 1.5
#: Threshold (ratio of mean to median): above it, few task runs determine the mean.
_OF_FEW = 5.0


def first_runs(evidence: Evidence) -> tuple[Rows, Rows]:
    """Return the first task runs of functions on their workers, and all other task runs.

    First runs started before any other run of the function had ended on the worker. Each of them
    may include an import or a compilation.
    """
    ended: dict[tuple[str, str], float] = {}
    for row in evidence.runs:
        place = row["function"], row["address"]
        ended[place] = min(ended.get(place, np.inf), row["held"])

    def is_first(row: dict[str, Any]) -> bool:
        # Modules may be imported after a task run has taken its thread, before its function is
        # called.
        taken = row["timestamp"] if row["executing"] is None else row["executing"]
        return bool(taken < ended[row["function"], row["address"]])

    return evidence.runs.where(is_first), evidence.runs.where(lambda row: not is_first(row))


@refuter("warm-up")
def warm_up(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare first runs on each worker with later runs, and imports with samples and stalls."""
    if claim["longest"] is not None:
        way = evidence.runs.numbers("received") - evidence.runs.numbers("sent")
        yield from exceeds(claim["longest"], float(np.nanmax(way)), "the longest way")
        if not len(evidence.rows("Loop Sample")):
            yield "no loop was sampled while it was blocked"
        return
    first, rest = first_runs(evidence)
    first_runs_of_function, others = (
        rows.where(lambda row: row["function"] == claim.function) for rows in (first, rest)
    )
    yield from exceeds(claim["runs"], len(first_runs_of_function), "first runs")
    yield from exceeds(
        claim["workers"], len(first_runs_of_function.by("address")), "workers that had them"
    )
    every = evidence.of(claim.function)
    yield from differs(
        claim["workers_of_function"], len(every.by("address")), "workers that ran it"
    )
    working, later = first_runs_of_function.numbers("working"), others.numbers("working")
    if not len(working) or not len(later):
        yield "there are no first runs, or none that follow"
        return
    # Tasks may hold threads for longer than functions run.
    slots = (
        first_runs_of_function.numbers("held")
        - first_runs_of_function.numbers("executing")
        - first_runs_of_function.numbers("waited")
    )
    yield from lies(claim["took"], working.min(), max(slots.max(), working.max()), "first runs")
    after = others.numbers("held") - others.numbers("executing") - others.numbers("waited")
    # Tasks with far more data than others are not compared with them.
    sizes, all_sizes = (
        np.fmax(rows.numbers("size"), rows.numbers("input_size")) for rows in (others, every)
    )
    larger = sizes >= _MORE_DATA * float(np.nanmedian(all_sizes))
    each = (later, later[~larger], after, after[~larger])
    usual = [float(np.median(seconds)) for seconds in each if len(seconds)]
    yield from lies(claim["usual"], min(usual), max(usual), "runs that follow")
    slots = first.numbers("held") - first.numbers("executing")
    most = float(np.fmax(slots, first.numbers("working")).sum())
    yield from exceeds(claim["lost"], most, "what is lost")


@refuter("dominant-function")
def dominant_function(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the seconds of each function. For warm-up, only bounds are known."""
    runs = evidence.of(claim.function)
    others = evidence.runs.where(lambda row: row["function"] != claim.function)
    yield from differs(claim["tasks"], len(runs), "its tasks")
    least, most = _without_first_uses(evidence, runs)
    least_others, most_others = _without_first_uses(evidence, others)
    yield from lies(claim["lasted"], least, most, "its seconds")
    low, high = least / (least + most_others), most / (most + least_others)
    yield from lies(claim["share"], low, high, "its share of all seconds")
    if claim["others"] is not None:
        each = least_others / len(others), most_others / len(others)
        yield from lies(claim["others"], *each, "seconds of others")
    elif len(others):
        yield "there are other functions"
    working = runs.numbers("working")
    yield from exceeds(claim["median"], float(np.median(working)), "its median")
    # CPU clocks and wall clocks differ slightly.
    cpu = [runs.sum("used"), runs.sum("cpu")]
    if not any(is_close(claim["on_cpu"], min(one / working.sum(), 1.0)) for one in cpu):
        yield f"its CPU share is {cpu[0] / working.sum():.3g}, not {claim['on_cpu']:.6g}"
    if claim["mean"]:
        yield from lies(claim["mean"], least / len(runs), most / len(runs), "its mean")
    elif least / len(runs) > _OF_FEW * np.median(working):
        yield f"half of its tasks took no more than {np.median(working):.3g} s"
    seceded = runs.where(lambda row: row["seceded"] is not None)
    if seceded.sum("working") > 0.5 * working.sum():
        yield "it gave its threads back while it waited for tasks of its own"


def _without_first_uses(evidence: Evidence, runs: Rows) -> tuple[float, float]:
    """Return bounds of the seconds of task runs without warm-up."""
    first = {id(row) for row in first_runs(evidence)[0]}
    most = runs.sum("working")
    least = float(runs.where(lambda row: id(row) not in first).numbers("working").sum())
    return least, most


@refuter("row-wise")
def row_wise(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with stack samples of the function in which libraries process single rows."""
    runs = evidence.of(claim.function)
    yield from differs(claim["tasks"], len(runs), "its tasks")
    stacks = stacks_of(runs, evidence)
    libraries = [[name for name, file, *_ in stack if "-packages/" in file] for stack in stacks]
    shown = sum(
        any(name.rpartition(".")[2] in _ONE_BY_ONE for name in names) for names in libraries
    )
    if claim["nested"]:
        shown = sum("-packages/" not in stack[-1][1] for stack in stacks)
    if shown < 0.5 * (claim["nested"] or claim["by_row"] or claim["by_value"]) * len(stacks):
        yield f"rows are handled in {shown} of {len(stacks)} samples"
