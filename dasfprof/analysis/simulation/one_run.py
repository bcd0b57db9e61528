"""What one task run waited for, part by part, and when it would have begun on another worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dasfprof.analysis.model.links import QUEUE, THREAD, find_links, find_predecessors
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import OPEN
from dasfprof.analysis.simulation.decisions import Candidate
from dasfprof.analysis.simulation.inputs import Costs, measure_costs
from dasfprof.text import count_of, elide, format_size

#: Transfers of more bytes than these tell how long bytes take.
_TELLING = 100_000
#: The part for which it was sent to a worker from which it was stolen.
ROBBED = "waits on another worker"
#: Characters of a key that are shown.
_LONGEST = 60
_ROBBED = "It waited there for a thread until it was stolen."


@dataclass(frozen=True)
class Part:
    """A part of a run's time: seconds from the trace's begin."""

    what: str
    #: A row of `Trace.workers`; -1: the scheduler.
    worker: int
    begin: float
    seconds: float
    why: str


class OneRun:
    """One run among all: a row of `TaskSlots`.

    Parameters
    ----------
    trace
        A run with its open runs: `Run.whole`.
    row
        The row.
    victim
        The worker that it was stolen from last; -1: it was not.
    """

    def __init__(self, trace: Run, row: int, victim: int) -> None:
        self._trace, self._row, self._slots = trace, row, trace.slots
        self._victim = victim
        self._seen = row < len(trace.tasks)
        self._titles = trace.named.titles()

    def key_of(self, row: int) -> str:
        """Return the key of a run, as text."""
        table = self._trace.tasks if row < len(self._trace.tasks) else self._trace.unseen
        place = row if row < len(self._trace.tasks) else row - len(self._trace.tasks)
        (key,) = self._trace.keys.texts(table["key_id"].to_numpy()[[place]])
        return elide(str(key), _LONGEST)

    def title_of(self, worker: int) -> str:
        """Return the name of a worker."""
        return self._titles[self._trace.named.of_lives[worker]] if worker >= 0 else "scheduler"

    def parts(self) -> Iterator[Part]:
        """Yield what it waited for and did, in the order of time; parts touch."""
        row, times, worker = self._row, self._slots.times, int(self._slots.worker[self._row])
        sent = float(self._slots.sent[row])
        stages = (
            ("waits for inputs", -1, times.arrival[row], times.runnable[row], self._inputs),
            ("is held at the scheduler", -1, times.runnable[row], times.sent[row], self._held),
            (ROBBED, self._victim, times.sent[row], sent, lambda: _ROBBED),
            ("is sent", worker, sent, times.received[row], self._sent),
            ("fetches inputs", worker, times.received[row], times.ready[row], self._fetched),
            ("waits for a thread", worker, times.ready[row], times.executing[row], self._thread),
            ("prepares", worker, times.executing[row], times.start[row], self._prepared),
            ("runs", worker, times.start[row], times.stop[row], self._ran),
            ("is put away", worker, times.stop[row], times.done[row], lambda: ""),
            ("is told", worker, times.done[row], times.known[row], lambda: ""),
        )
        for what, where, begin, end, why in stages:
            if end > begin:
                yield Part(what, where, float(begin), float(end - begin), why())

    def _inputs(self) -> str:
        links = find_links(self._trace)
        own = np.flatnonzero(links.row == self._row)
        made = links.producer[own][links.producer[own] >= 0]
        if not len(made):
            return "The runs that made its inputs are not recorded." if len(own) else ""
        known = self._slots.times.known[made]
        last = int(made[np.argmax(known)])
        where = self.title_of(int(self._slots.worker[last]))
        return (
            f"Of {count_of(len(own), 'input')} {self.key_of(last)} came last, from {where} at "
            f"{known.max():.3f} s."
        )

    def _held(self) -> str:
        found = find_predecessors(self._trace)
        annotated = self._annotations()
        if annotated.get("workers") or annotated.get("resources"):
            return "No worker was there that it may run on, or none was running."
        if found.kind[self._row] == QUEUE:
            ended = int(found.row[self._row])
            where = self.title_of(int(self._slots.worker[ended]))
            return f"Workers had their share of tasks, until {self.key_of(ended)} ended on {where}."
        return "Workers had their share of tasks, or none was there."

    def _annotations(self) -> dict[str, object]:
        if not self._seen or "annotations" not in self._trace.tasks:
            return {}
        told = self._trace.tasks["annotations"].iloc[self._row]
        return told if isinstance(told, dict) else {}

    def _sent(self) -> str:
        return "The message, and both event loops." if self._seen else ""

    def _fetched(self) -> str:
        trace, row = self._trace, self._row
        lengths, keys = trace.transfer_keys
        table, times = trace.transfers, self._slots.times
        links = find_links(trace)
        wanted = links.key_id[links.row == row]
        if not len(wanted):
            return ""
        began = trace.on_one_clock(table["start"], table["worker_id"])
        came = began + table["duration"].to_numpy(dtype=float)
        mine = (table["worker_id"].to_numpy() == self._slots.worker[row]) & (
            (came >= times.received[row]) & (began <= times.ready[row])
        )
        of_key = np.repeat(np.arange(len(table)), np.maximum(lengths, 0))
        brought = np.unique(of_key[np.isin(keys, wanted)])
        brought = brought[mine[brought]]
        if not len(brought):
            return "They were there, or no transfer of them is recorded in that time."
        sources = dict.fromkeys(table["source"].astype(object).iloc[brought])
        lives = {address: life for life, address in enumerate(trace.workers["address"])}
        names = [self.title_of(lives[each]) if each in lives else str(each) for each in sources]
        size = format_size(float(table["size"].iloc[brought].sum()))
        return f"{count_of(len(brought), 'message')} with {size} from {', '.join(names[:3])}."

    def _thread(self) -> str:
        found = find_predecessors(self._trace)
        resources = self._annotations().get("resources")
        words = f" It asked for {resources}." if resources else ""
        if found.kind[self._row] == THREAD:
            return f"Until {self.key_of(int(found.row[self._row]))} gave one back.{words}"
        return f"What had it before is not recorded.{words}" if words else "Its worker's loop."

    def _prepared(self) -> str:
        if not self._seen:
            return ""
        read = self._trace.tasks["disk_read_size"].iloc[self._row]
        return f"{format_size(float(read))} were read back from disk." if read > 0 else ""

    def _ran(self) -> str:
        return f"State: {self._trace.tasks['state'].iloc[self._row]}." if self._seen else ""

    # --- Had it gone elsewhere --------------------------------------------------------------------

    @cached_property
    def _costs(self) -> Costs:
        return measure_costs(self._trace, self._slots)

    def begin_on(self, candidate: Candidate, sent: float) -> tuple[float, str]:
        """Return when it would have begun, sent to another worker; or NaN and why that is unknown.

        That is when a thread was free there by the record, no other task waited for it, and its
        inputs could have come. It says nothing about the tasks after it.
        """
        trace, slots, row, who = self._trace, self._slots, self._row, candidate.worker
        costs = self._costs
        at = sent + costs.to_worker
        if candidate.missing > 0:
            table = trace.transfers
            if not (len(table) and (table["size"] > _TELLING).any()):
                return np.nan, "Unknown: no transfer tells how long its inputs would take."
            at += costs.transfer + candidate.missing / costs.bandwidth
        lives = trace.lives
        place = np.flatnonzero(lives.ids == who)
        if not len(place):
            return np.nan, "Unknown: when that worker was there is not recorded."
        life = int(place[0])
        own = np.flatnonzero(slots.worker == who)
        begins, ends = slots.times.executing[own], slots.end[own]
        ready, until = slots.times.ready[own], float(slots.times.executing[row])
        changes, statuses = lives.statuses[life]
        moments = np.sort(ends[(ends > at) & (ends < until)])
        for moment in [at, *moments.tolist()]:
            if moment >= until:
                break
            status = statuses[max(int(np.searchsorted(changes, moment, side="right")) - 1, 0)]
            busy = int(((begins <= moment) & (ends > moment)).sum())
            waits = bool(((ready <= moment) & (begins > moment)).any())
            there = lives.begin[life] <= moment <= lives.end[life] and status == OPEN
            if there and not waits and busy < int(lives.threads[life]):
                return moment + costs.start, ""
        return np.nan, "Not sooner: no thread was free there before it began."
