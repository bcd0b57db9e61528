"""What a run cost: the hours of its workers, by whose tasks held their threads, and their price.

A worker is paid for from its first fact to its last, or from joining to leaving. Each second of a
thread costs its part of the worker: the hours of all groups and of the idle threads sum to the
whole. Without a task's thread it is for nobody: threads that were idle while clients had work under
way are told apart from those that were while they had none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.model.accounting import busy_seconds, make_accounts
from dasfprof.analysis.model.thread_time import USES, ThreadTime
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.run import Run
from dasfprof.config.kinds import Price
from dasfprof.database.columns import Array

#: Seconds of an hour.
HOUR = 3600.0
#: What stands for a group in the rows of threads that no task held: nobody's, and waiting ones.
IDLE, WAITING = "(idle)", "(waiting)"
#: Classes of threads that are idle because nobody has anything to do, or the worker is not there.
_NOBODYS = (ThreadTime.NOTHING_SUBMITTED, ThreadTime.STARTING, ThreadTime.CLOSING)
#: What stands for a client where none is known.
NO_CLIENT = "(no client)"
#: How the id of a client ends that was given a name.
_UUID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
#: And how it begins.
_CLIENT = re.compile(r"^Client-(?:worker-)?")


@dataclass(frozen=True)
class Hours:
    """Hours of workers, and of their threads."""

    workers: float = 0.0
    threads: float = 0.0

    def price(self, price: Price) -> float:
        """Return what they cost."""
        return price.of_hours(self.workers, self.threads)


def hours_of_run(run: Run) -> dict[str, Hours]:
    """Return the hours of a run: ``whole``, and of these ``idle`` and ``waiting``."""
    accounts = make_accounts(run)
    seconds = accounts.of_lives
    idle = seconds[:, list(_NOBODYS)].sum(axis=1)
    waiting = seconds[:, USES:].sum(axis=1) - idle
    threads = accounts.lives.threads
    return {
        name: _hours(own, threads)
        for name, own in (("whole", seconds.sum(axis=1)), ("idle", idle), ("waiting", waiting))
    }


def _hours(seconds: Array, threads: Array) -> Hours:
    """Turn the thread-seconds of each life into hours."""
    known = np.nan_to_num(seconds)
    return Hours(float(ratio(known, threads).sum() / HOUR), float(known.sum() / HOUR))


def hours_of_groups(run: Run, codes: Array, names: list[str]) -> dict[str, Hours]:
    """Return the hours of groups of task runs, and of the threads that no task held.

    Parameters
    ----------
    run
        The run.
    codes, names
        The group of each of the slots of `Run.whole`, and what they are called.
    """
    ran, accounts = run.whole, make_accounts(run)
    lives, workers = accounts.lives, len(run.workers)
    groups = codes * workers + ran.slots.worker
    spent = busy_seconds(ran, groups, len(names) * workers).sum(axis=1)
    of_lives = spent.reshape(len(names), workers)[:, lives.ids]
    whole = hours_of_run(run)
    found = {name: _hours(own, lives.threads) for name, own in zip(names, of_lives, strict=True)}
    return found | {WAITING: whole["waiting"], IDLE: whole["idle"]}


def client_groups(run: Run) -> tuple[Array, list[str]]:
    """Number the clients whose graphs the slots of `Run.whole` came with.

    Returns
    -------
    codes, names
        Slot ``i`` is of ``names[codes[i]]``; the last one is `NO_CLIENT`.
    """
    ran = run.whole
    stimuli = [
        table["graph"].to_numpy(dtype=float) if "graph" in table else np.full(len(table), np.nan)
        for table in (ran.tasks, ran.unseen)
    ]
    graphs = run.graphs
    columns = (graphs[name].astype(object).tolist() for name in ("stimulus", "client"))
    of_graph = {
        stimulus: client_name(str(client)) for stimulus, client in zip(*columns, strict=True)
    }
    names = [*dict.fromkeys(of_graph.values()), NO_CLIENT]
    places = {name: place for place, name in enumerate(names)}
    nobody = len(names) - 1
    of_slots = np.nan_to_num(np.concatenate(stimuli), nan=-1.0).astype(np.int64).tolist()
    codes = [places.get(of_graph.get(stimulus, ""), nobody) for stimulus in of_slots]
    return np.array(codes, dtype=np.int64), names


def client_name(client: str) -> str:
    """Return the name that a client was given; of one without, its id."""
    named = _UUID.sub("", client)
    return _CLIENT.sub("", named) if named not in {"Client", "Client-worker"} else client


def price_of_findings(run: Run, findings: pd.DataFrame, price: Price | None) -> pd.DataFrame:
    """Return what the seconds at stake of each finding cost: those of the workers that were there.

    Seconds of a run cost what its workers cost in the mean, from its begin to its end.
    """
    whole, seconds = hours_of_run(run)["whole"], findings["Seconds at stake (s)"].to_numpy()
    wall = run.wall
    share = seconds / wall if wall > 0 else np.full(len(seconds), np.nan)
    table = pd.DataFrame({"Worker Hours": share * whole.workers})
    return table if price is None else table.assign(Cost=share * whole.price(price))
