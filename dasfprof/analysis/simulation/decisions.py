"""Which worker the scheduler would choose for a run, recomputed by Dask's rules of what it knew.

The rules are those of `SchedulerState.decide_worker_*` and `WorkStealing._get_thief`. `Placement`
follows the same in simulated time; here they are asked of the record, with restrictions, and tell
all workers that they had to choose from.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from math import ceil, floor

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.inputs import SATURATION, ReplayInputs
from dasfprof.analysis.simulation.recorded_changes import Change, Event, Record
from dasfprof.analysis.simulation.recorded_state import SchedulerState, View
from dasfprof.analysis.simulation.replay import replay_of
from dasfprof.analysis.trace.tasks import P2P_BARRIER
from dasfprof.database.keys import TUPLE

#: Of so many workers and more, Dask takes one in turn, whatever they have to do.
_IN_TURN = 20
#: Seconds within which sums of the same parts are the same.
_SAME = 1e-9
_SATURATION = "distributed.scheduler.worker-saturation"


class Rule(Enum):
    """By what the scheduler chose, in words."""

    FEWEST = "the fewest tasks for each thread, of the workers with room: its group is large"
    BESIDE = "the worker of the one before of its large group, for each thread's share of it"
    SOONEST = "the soonest start, of the workers that hold an input"
    ALLOWED = "the soonest start, of the workers that it may run on"
    IDLE = "the least to do, of idle workers; those with nothing come in turn"
    STOLEN = "the soonest start, of idle workers: work stealing"


@dataclass(frozen=True)
class Candidate:
    """A worker that the scheduler had to choose from."""

    worker: int
    #: Tasks that it had been sent, and the seconds that they were expected to take.
    tasks: int
    occupancy: float
    #: Bytes of inputs that it did not hold.
    missing: float
    #: In how many seconds the run was expected to begin there.
    begin: float


@dataclass(frozen=True)
class Decision:
    """What the scheduler chose for a run, and what its rules choose of what it knew."""

    time: float
    #: The worker that it was sent to; that it was taken from, if it was stolen.
    worker: int
    victim: int = -1
    rule: Rule | None = None
    candidates: tuple[Candidate, ...] = ()
    #: Other workers that were running and able to, which the rule does not look at.
    others: tuple[Candidate, ...] = ()
    #: The workers that the rule chooses: several where it takes any of them.
    equals: frozenset[int] = frozenset()
    #: And those that it may choose as well, by what the scheduler may have known.
    unsure: frozenset[int] = frozenset()
    #: What restricted the choice, in words; why it cannot be recomputed.
    asked: str = ""
    untold: str = ""

    @property
    def agreement(self) -> str:
        """``same``, ``tied``, ``unsure``, ``other`` or ``untold``: whether both are the same."""
        if self.rule is None:
            return "untold"
        if self.worker not in self.equals | self.unsure:
            return "other"
        if self.unsure - self.equals:
            return "unsure"
        return "same" if len(self.equals) == 1 else "tied"


def decisions_of(trace: Run, rows: Iterable[int]) -> dict[int, list[Decision]]:
    """Recompute where the scheduler sent runs, and whom it let steal them.

    Parameters
    ----------
    trace
        A run with its open runs: `Run.whole`.
    rows
        Of `TaskSlots`.
    """
    record = Record(trace)
    decider, wanted = _Decider(record), set(rows)
    found: dict[int, list[Decision]] = {row: [] for row in wanted}
    last = max((record.known[row] for row in wanted), default=-np.inf)
    last = np.inf if np.isnan(last) else last
    for event in record.events:
        if event.time > last:
            break
        if event.change in (Change.SENT, Change.REQUESTED) and event.row in wanted:
            found[event.row].append(decider.decide(event))
        decider.take(event)
    return found


@dataclass(frozen=True)
class _Asked:
    """What a run asked for."""

    #: The workers that it may run on; None: all.
    workers: frozenset[int] | None = None
    loose: bool = False
    words: str = ""
    #: Whether it needs resources, without which it runs nowhere.
    needs: bool = False
    untold: str = ""


#: Rules by which the soonest start is chosen.
_BY_BEGIN = {Rule.SOONEST, Rule.ALLOWED, Rule.STOLEN}
#: Of a decision by one view: the workers that the rule takes, with the candidates.
_Choice = tuple[Rule, frozenset[int], tuple[Candidate, ...]]


def _by_bounds(choices: list[_Choice]) -> frozenset[int]:
    """Return workers that may begin soonest, if the scheduler knew of some copies only.

    Parameters
    ----------
    choices
        Without any copy that it may not have known of, and with all, in turns.
    """
    found: set[int] = set()
    for without, all_copies in zip(choices[::2], choices[1::2], strict=False):
        if without[0] not in _BY_BEGIN or all_copies[0] not in _BY_BEGIN:
            continue
        late = {each.worker: each.begin for each in without[2]}
        soon = {each.worker: each.begin for each in all_copies[2]}
        latest = min(late.values())
        found |= {who for who, begin in soon.items() if begin <= latest + _SAME}
    return frozenset(found)


class _Decider:
    """Chooses by what the scheduler knew.

    Parameters
    ----------
    record
        The run's.
    """

    def __init__(self, record: Record) -> None:
        self._trace, self._record = record.trace, record
        trace, self.state = record.trace, SchedulerState(record)
        self._inputs: ReplayInputs = replay_of(trace).inputs
        self._actors = set(trace.actor_calls["key_id"].tolist()) if len(trace.actor_calls) else ()
        try:
            self._saturation = float(trace.surroundings.settings.get(_SATURATION) or SATURATION)
        except ValueError:  # processes of the run have different ones
            self._saturation = SATURATION
        kinds = np.array([kind >= TUPLE for kind, _ in trace.keys.heads], dtype=bool)
        self._of_collections = kinds[trace.keys.head_ids]
        #: Of each group without a queue: who had the last run, and how many more are to follow.
        self._last: dict[int, tuple[int, int]] = {}

    def take(self, event: Event) -> None:
        """Take a change."""
        if event.change is Change.SENT and self._saturation == np.inf and self._is_large(event.row):
            group = int(self._inputs.group[event.row])
            worker, left = self._last.get(group, (-1, 0))
            if worker != event.worker or left <= 0:
                threads = self.state.workers[event.worker].threads
                share = int(self._inputs.root_group_size[event.row]) * threads
                left = floor(share / max(self.state.total_threads, 1))
            self._last[group] = event.worker, left - 1
        self.state.take(event)

    def decide(self, event: Event) -> Decision:
        """Recompute a decision, before it is taken."""
        stolen = event.change is Change.REQUESTED
        self.state.now = event.time
        victim = -1
        if stolen:
            had = (who for who, runs in self.state.processing.items() if event.row in runs)
            victim = next(had, -1)
        asked = self._asked(event.row)
        made = Decision(event.time, event.worker, victim, asked=asked.words)
        if untold := asked.untold or self._untold(event.row):
            return replace(made, untold=untold)
        choices: list[_Choice] = []
        for longer, faster, copied in itertools.product((False, True), repeat=3):
            view = View(longer, faster, copied)
            choices += self._choices(event.row, asked, view, victim)
        if not choices:
            untold = "no worker was there that it may run on, as far as is recorded"
            return replace(made, untold=untold)
        rule, equals, candidates = choices[0]
        may = frozenset().union(*(each for _, each, _ in choices)) | _by_bounds(choices)
        if stolen and self.state.in_flight:
            # What was asked for before counts as moved, whether it was or not.
            may |= {each.worker for each in candidates}
        looked = {each.worker for each in candidates} | {victim}
        left = [who for who in self._running() if who not in looked and not asked.needs]
        others = tuple(self._candidate(event.row, who, View()) for who in left)
        found = Decision(made.time, made.worker, victim, rule, candidates, others)
        return replace(found, equals=equals, unsure=may - equals, asked=asked.words)

    def _untold(self, row: int) -> str:
        record, state = self._record, self.state
        if row >= len(self._inputs):
            return "the run is in no worker's file"
        if int(record.key[row]) in self._actors:
            return "it is an actor, whose workers count their actors first"
        for key in record.inputs(row):
            if record.functions[self._trace.keys.functions()[0][key]] == P2P_BARRIER:
                return "its shuffle chose the worker that gathers its partition"
            if not state.holders.get(key):
                return "who held one of its inputs was not recorded, as of scattered data"
        return ""

    def _asked(self, row: int) -> _Asked:
        """Return what a run's annotations allow."""
        told = self._record.annotations[row]
        if not isinstance(told, dict):
            return _Asked()
        allowed, words = None, []
        wanted = told.get("workers")
        wanted = [wanted] if isinstance(wanted, str | int) else list(wanted or ())
        if wanted:
            allowed = frozenset(who for who in self.state.workers if self._is_one(who, wanted))
            words.append(f"workers {', '.join(map(str, wanted))}")
        resources = told.get("resources")
        if isinstance(resources, dict) and resources:
            words.append(", ".join(f"{name} {amount}" for name, amount in resources.items()))
            offers = self._trace.workers["resources"]
            if any(not isinstance(offers[who], dict) for who in self.state.workers):
                untold = "the workers' resources were not recorded"
                return _Asked(words="; ".join(words), untold=untold)
            able = frozenset(
                who
                for who in self.state.workers
                if all(offers[who].get(name, 0) >= need for name, need in resources.items())
            )
            allowed = able if allowed is None else allowed & able
        loose = bool(told.get("allow_other_workers"))
        return _Asked(allowed, loose, "; ".join(words), needs=bool(resources))

    def _is_one(self, who: int, wanted: list[object]) -> bool:
        """Return whether a worker is among addresses, names and hosts."""
        worker, address = self._trace.workers.iloc[who], self._record.address[who]
        host = address.rpartition("://")[2].rpartition(":")[0]
        own = {address, address.rpartition("://")[2], str(worker["name"]), host, worker["host"]}
        return any(str(one) in own for one in wanted)

    # --- The rules --------------------------------------------------------------------------------

    def _is_large(self, row: int) -> bool:
        if row >= len(self._inputs):
            return False
        return bool(self._inputs.root_group_size[row] > 2 * self.state.total_threads)

    def _choices(self, row: int, asked: _Asked, view: View, victim: int) -> list[_Choice]:
        """Return what the rule chooses; of several rules that may have been the one, of each."""
        if victim >= 0:
            return self._thief(row, asked, view)
        if asked.workers is not None:
            return self._holder(row, asked, view)
        queued = bool(self._record.queued[row] < self._record.sent[row])
        if self._is_large(row) or queued:
            return self._large(row, view)
        found = self._holder(row, asked, view)
        # What reads data counts as of a large group, and nothing tells which tasks do.
        if self._of_collections[self._record.key[row]] and self._inputs.root_group_size[row] > 0:
            found += self._large(row, view)
        return found

    def _large(self, row: int, view: View) -> list[_Choice]:
        workers = self.state.workers
        if self._saturation == np.inf:
            group = int(self._inputs.group[row])
            worker, left = self._last.get(group, (-1, 0))
            if left > 0 and worker in workers and workers[worker].running:
                return [self._choice(Rule.BESIDE, row, [worker], view)]
            pool = self._idle(view) or self._running()
            return [self._choice(Rule.BESIDE, row, pool, view)]
        busy: dict[int, float] = {}
        for who, facts in workers.items():
            sent = len(self.state.processing[who] - self.state.seceded)
            room = max(ceil(self._saturation * facts.threads), 1) - sent
            if room > 0 and facts.running:
                busy[who] = len(self.state.processing[who]) / facts.threads
        if not busy:
            return []
        least = min(busy.values())
        equals = frozenset(who for who, tasks in busy.items() if tasks == least)
        return [(Rule.FEWEST, equals, tuple(self._candidate(row, who, view) for who in busy))]

    def _holder(self, row: int, asked: _Asked, view: View) -> list[_Choice]:
        running, inputs = set(self._running()), self._record.inputs(row)
        allowed = asked.workers
        if allowed is None and len(running) < len(self.state.workers):
            allowed = frozenset(running)
        if not inputs and allowed is None:
            return self._in_turn(row, view)
        found: set[int] = set()
        for key in inputs:
            found |= self.state.holders_of(key, view) & running
        rule = Rule.SOONEST
        if allowed is not None:
            found &= allowed
            if not found:
                found, rule = set(allowed) & running, Rule.ALLOWED
            if not found and asked.loose:
                found = set(running)
            if not found:
                return []
        return [self._choice(rule, row, sorted(found or running), view)]

    def _in_turn(self, row: int, view: View) -> list[_Choice]:
        pool = self._idle(view) or sorted(self.state.workers)
        candidates = tuple(self._candidate(row, who, view) for who in pool)
        if len(pool) >= _IN_TURN:
            return [(Rule.IDLE, frozenset(pool), candidates)]
        least = min(each.occupancy for each in candidates)
        equals = [each.worker for each in candidates if each.occupancy == least]
        if least > 0:
            equals = [min(equals, key=lambda who: self._record.address[who])]
        return [(Rule.IDLE, frozenset(equals), candidates)]

    def _thief(self, row: int, asked: _Asked, view: View) -> list[_Choice]:
        idle = self._idle(view)
        if asked.workers is not None:
            idle = [who for who in idle if who in asked.workers] or (idle if asked.loose else [])
        return [self._choice(Rule.STOLEN, row, idle, view)] if idle else []

    def _choice(self, rule: Rule, row: int, pool: list[int], view: View) -> _Choice:
        """Choose the soonest start, and of equal ones the worker that holds the least."""
        candidates = tuple(self._candidate(row, who, view) for who in pool)
        workers = self.state.workers
        costs = [(each.begin, workers[each.worker].nbytes) for each in candidates]
        least = min(costs)
        chosen = zip(candidates, costs, strict=True)
        return rule, frozenset(each.worker for each, cost in chosen if cost == least), candidates

    def _candidate(self, row: int, who: int, view: View) -> Candidate:
        state = self.state
        occupancy, missing = state.occupancy(who, view), state.missing_bytes(row, who, view)
        begin = occupancy / state.workers[who].threads + missing / state.bandwidth(view)
        return Candidate(who, len(state.processing[who]), occupancy, missing, begin)

    def _running(self) -> list[int]:
        return [who for who, worker in self.state.workers.items() if worker.running]

    def _idle(self, view: View) -> list[int]:
        """Return workers with fewer tasks than threads, or with less than half of the usual work.

        The scheduler looks at the latter only as a worker's own tasks change; how many it counted
        as idle then is told apart by `view.longer`.
        """
        state = self.state
        occupied = {who: state.occupancy(who, view) for who in state.workers}
        mean = sum(occupied.values()) / max(state.total_threads, 1)
        found = []
        for who in self._running():
            threads = state.workers[who].threads
            few = len(state.processing[who]) < threads
            if few or (view.longer and occupied[who] < threads * mean / 2):
                found.append(who)
        return found
