"""Rules about threads that are idle while work runs outside of tasks, or for an unknown reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.accounting import accounts_within, make_accounts
from dasfprof.analysis.model.client_time import ClientTime, at_a_prompt, meanwhile
from dasfprof.analysis.model.thread_time import HELPS, USES, ThreadTime
from dasfprof.analysis.stack_samples.places import client_fraction, client_line, client_meanwhile
from dasfprof.analysis.under_way.state import write_frame
from dasfprof.analysis.wording import Seconds, Share
from dasfprof.text import excerpt

#: Thresholds: fraction of thread time that is idle, the fraction of the idle time for which work
#: provably runs outside of tasks, and seconds of such work.
_IDLE, _ELSEWHERE, _LONG = 0.5, 0.2, 1.0
#: Files of Dask's local schedulers. Threshold (fraction of the client's time): it is in these
#: files.
_LOCAL, _MOSTLY = re.compile(r"/dask/(?:local|threaded|multiprocessing)\.py$"), 0.5
#: Categories in which threads could run no task.
_NO_THREAD = (ThreadTime.STARTING, ThreadTime.CLOSING, ThreadTime.UNRECORDED)
_OUTSIDE = "The work runs outside of tasks: "


@rule("work-outside-tasks", explains="client-bound slow-startup too-few-tasks load-imbalance")
def work_outside_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find workers that have no tasks because the work is done outside of tasks."""
    accounts = make_accounts(run.trace)
    if run.trace.surroundings.local or not len(accounts.lives.ids):
        return
    begin, end = float(accounts.lives.begin.min()), float(accounts.lives.end.max())
    since = run.begin + run.wall if run.wall > 0 else begin
    # Other rules report the client's work before its first task and between tasks.
    after = accounts_within(run.trace, since, end).of_lives.sum(axis=0)
    span, spent = end - begin, accounts.of_lives.sum(axis=0)
    threads = max(float(spent.sum()) / max(span, 1e-9), 1e-9)
    functions = float(spent[ThreadTime.FUNCTIONS_OUTSIDE_TASKS]) / threads
    calls = float(spent[ThreadTime.CALLS_OF_ACTORS]) / threads
    client = float(after[ThreadTime.NOTHING_SUBMITTED]) / threads
    times = run.trace.begin + since, run.trace.begin + end
    spans = np.array(times[:1]), np.array(times[1:])
    local = client_fraction(run.trace, *spans, files=_LOCAL) >= _MOSTLY
    if not local:  # While a client waits for workers or for their end, it does not work itself.
        waiting = client_fraction(run.trace, *spans, phase="waiting") * (end - since)
        is_recorded = len(run.trace.client_samples) + len(run.trace.client_calls) > 0
        running = meanwhile(run.trace, *spans).get(ClientTime.PROGRAM, client) * is_recorded
        client = min(client, running, end - since - waiting) - at_a_prompt(run.trace, *times)
        client = max(client, 0.0)
    seconds = functions + calls + client
    least = _ELSEWHERE if local or functions + calls > client else _IDLE
    if seconds < max(_LONG, least * span):
        return
    line = client_line(run.trace, *times)
    at = "" if line is None else f", at {write_frame(line)}"
    if functions >= max(calls, client):
        what = f"workers run {_function(run)} for {{functions}}{at}"
        advice = (
            "Divide this work into tasks with client.submit() or client.map(). client.run() uses "
            "one thread of each worker, and does not balance the work between workers."
        )
    elif calls >= client:
        what = f"actor calls take {{calls}}{at}"
        advice = (
            "Do the actor's work in tasks, or distribute it over several actors. An actor runs one "
            "call at a time, so submit many calls before you wait for the first result."
        )
    elif local:
        what = f"one of Dask's local schedulers computes in the client's process{at}"
        advice = (
            'Remove scheduler="threads", "processes" or "sync" from compute(), dask.config.set() '
            "and the configuration of Dask, so that the cluster computes."
        )
    else:
        what = f"the client's program runs for {{client}}{at}"
        advice = (
            "Do this work in tasks with map_partitions(), map_blocks() or client.submit(). If a "
            "library computes in the client, call it in tasks, or use its Dask version. If the "
            "cluster has no more work, close it earlier."
        )
    yield Finding.of(
        f"{_OUTSIDE}{what}. Meanwhile, workers have no tasks, for a total of {{idle}} "
        "({share} of their time).",
        "Of this time, functions that clients run on workers took {functions}, actor calls took "
        "{calls}, and the client's program took {client}. "
        f"{client_meanwhile(run.trace, *spans)}See "
        "time_accounting(), client_activity() and client_calls().",
        advice,
        idle=Seconds(seconds),
        share=Share(seconds / span),
        functions=Seconds(functions),
        calls=Seconds(calls),
        client=Seconds(client),
        local=local,
        costs=seconds,
        at_least="medium",
        at_most="medium" if client > functions + calls and not local else "high",
        of_client=True,
    )


def _function(run: RunFigures) -> str:
    """Return the name of the function outside of tasks that took most of the workers' time."""
    ran = run.trace.worker_functions
    seconds = ran.groupby(ran["function"].astype(object))["duration"].sum()
    return excerpt(str(seconds.idxmax())) if len(seconds) else "a function"


@rule("idle-threads", general=True)
def idle_threads(run: RunFigures) -> Iterator[Finding]:
    """Find threads that are idle for most of their time."""
    seconds = make_accounts(run.trace).of_lives.sum(axis=0)
    idle = np.array([spent >= USES and spent not in _NO_THREAD for spent in ThreadTime])
    share = float(seconds[idle].sum() / seconds.sum()) if seconds.sum() > 0 else 0.0
    wall = share * float(seconds.sum()) / run.threads if run.threads > 0 else 0.0
    if share <= _IDLE or not wall >= _LONG:
        return
    longest = max(ThreadTime, key=lambda spent: seconds[spent] * idle[spent])
    yield Finding.of(
        "Threads of workers are idle for {idle} of their time. The largest category, "
        f"{longest.label}, has {{longest}} of this idle time.",
        f"{longest.meaning} No other finding shows the reason. See time_accounting().",
        HELPS[longest],
        idle=Share(share),
        longest=Share(seconds[longest] / seconds[idle].sum()),
        category=longest.label,
        costs=wall,
        of_client=True,
        at_most="low",
    )
