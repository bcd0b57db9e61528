"""`Tuner`: finds the workers, threads and parameters with which a program is fastest here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from dasfprof.analysis.comparison.trial import LOOKS, Point, Trial, Tuning, in_gib, in_words
from dasfprof.analysis.diagnosis.registry import OF_CLUSTERS, Value
from dasfprof.errors import InvalidArgumentError, TrialError
from dasfprof.handles.trial.grid import Host, Predictions, cluster_sizes
from dasfprof.handles.trial.process import Done
from dasfprof.handles.trial.runs import PLAIN, ProgramRuns, Variant, gain_of
from dasfprof.handles.trial.settings import Settings
from dasfprof.text import count_of

#: Maximum number of settings that run in turns.
_BEST = 3
#: Threshold (ratio): closer predictions count as equal, so the setting with fewer threads is first.
_SAME = 1.03
#: A setting stops if all of its runs take longer than the longest run of the best setting, by this
#: factor, after at least this number of runs.
_CLEAR, _CLEAR_AFTER = 1.1, 2
#: Threshold (fraction): a setting this close to the best one is equally good. It stops at the first
#: test, so that the best setting and the baseline get the remaining time.
_CLOSE = 0.05
#: Time limit of a run, as a multiple of the time of a baseline run.
_PATIENCE = 3.0
#: Fraction of the available time for single runs that show which settings should run more often.
_SCREENING = 0.4
#: Maximum number of combinations of parameters. Each combination needs at least one run.
_MOST_VALUES = 12


@dataclass
class _Candidate:
    """Settings that run alternately with the baseline."""

    point: Point
    side: Variant
    done: list[Done] = field(default_factory=list)
    #: Reason why the settings cannot be tested further, or empty.
    obstacle: str = ""
    is_over: bool = False

    @property
    def goes_on(self) -> bool:
        return not self.obstacle and not self.is_over

    @property
    def seconds(self) -> float:
        return float(np.mean([done.seconds for done in self.done])) if self.done else math.inf


class Tuner:
    """A search for the settings with which a program is fastest.

    Parameters
    ----------
    parameters
        Values to test, by name (see `settings.checked`). By default, numbers of workers and threads
        that fit on this host are tested.
    host
        Resources that all workers together may use.
    """

    def __init__(
        self,
        runs: ProgramRuns,
        parameters: Mapping[str, Sequence[Value]] | None = None,
        host: Host | None = None,
    ) -> None:
        self._runs, self._parameters = runs, dict(parameters or {})
        self._host = host or Host.here()
        self._limits: list[str] = []
        self._plain: list[Done] = []
        others = {n: values for n, values in self._parameters.items() if n not in OF_CLUSTERS}
        #: All combinations of values of the parameters that are not options of clusters.
        self._changes = [dict(zip(others, each, strict=True)) for each in product(*others.values())]
        if len(self._changes) > _MOST_VALUES:
            raise InvalidArgumentError(
                f"the parameters have {len(self._changes)} combinations, each of which needs a "
                f"run. The maximum is {_MOST_VALUES}."
            )

    def tune(self) -> Tuning:
        """Predict settings by replays of a run, test the best ones, and return the result.

        Raises
        ------
        TrialError
            If the program fails without a change, does not finish, or creates no local cluster.
        """
        first = self._runs.begin()
        if not first.clusters and not any(self._changes):
            raise TrialError(
                "The program creates no LocalCluster, and no Client that creates one. The "
                "cluster that it connects to is started outside of it. Name parameters of the "
                "program with --parameter."
            )
        points = self._points(first)
        chosen = self._best(points)
        if not chosen:
            chosen, points = self._screened(points)
        candidates = [_Candidate(point, self._side(point.change)) for point in chosen]
        self._run_by_turns(candidates)
        return self._result(first, points, candidates)

    def _points(self, first: Done) -> list[Point]:
        """Return all settings to consider, with predictions or with the reason to leave them out.

        `first` is the first unchanged run.
        """
        points: list[Point] = []
        for change in self._changes:
            done, why = (first, "") if not change else self._recorded(change)
            if why:
                points.append(Point(change, left_out=why))
                continue
            predictions = Predictions(done, self._host)
            self._limits += [limit for limit in predictions.limits if limit not in self._limits]
            if change:
                points.append(Point(change, predicted=done.seconds))
            if first.clusters:
                points += self._on_clusters(change, predictions)
        return points

    def _recorded(self, change: Mapping[str, Value]) -> tuple[Done, str]:
        """Run the program once with changed parameters.

        Return how this run ended, and why these parameters are left out (empty if they are not).
        """
        side = self._side(change)
        done = self._runs.run(side, patience=_PATIENCE, with_traces=True)
        return done, self._why_left_out(done, side)

    def _why_left_out(self, done: Done, side: Variant) -> str:
        """Return why the settings of a run are left out, or an empty text if they are not."""
        if fault := self._runs.fault(done, side):
            return fault
        agreement = self._runs.agreement([done])
        return agreement.text if agreement.kind == "differ" else ""

    def _on_clusters(self, change: Mapping[str, Value], predictions: Predictions) -> list[Point]:
        shape, points = self._runs.shape, []
        for workers, threads in cluster_sizes(self._host, self._parameters):
            limits = self._parameters.get("memory_limit") or [in_gib(self._host.memory / workers)]
            kinds: Sequence[Value | None] = self._parameters.get("processes") or [None]
            for limit, processes in product(limits, kinds):
                sized: dict[str, Value] = {"n_workers": workers, "threads_per_worker": threads}
                if processes is not None:
                    sized["processes"] = processes
                if predictions.processes or processes:
                    sized["memory_limit"] = limit
                is_as_it_was = (workers, threads) == (shape.workers, shape.threads)
                if is_as_it_was and processes is None and not predictions.lacks_memory(limit):
                    continue
                point = predictions.point({**sized, **change}, workers, threads, limit)
                points.append(point)
        return points

    def _best(self, points: Sequence[Point]) -> list[Point]:
        """Return the settings that are fastest by replay.

        If several are equally fast, the smallest cluster comes first.
        """
        known = [point for point in points if math.isfinite(point.predicted) and not point.left_out]
        least = min((point.predicted for point in known), default=math.nan)

        def rank(point: Point) -> tuple[int, int, int]:
            longer = int(math.log(point.predicted / least) / math.log(_SAME)) if least > 0 else 0
            workers = int(point.change.get("n_workers", self._runs.shape.workers))
            threads = int(point.change.get("threads_per_worker", self._runs.shape.threads))
            return longer, workers * threads, workers

        return sorted(known, key=rank)[:_BEST]

    def _screened(self, points: list[Point]) -> tuple[list[Point], list[Point]]:
        """Run each setting once, because there are no predictions.

        Return the fastest settings, and all settings. Settings that failed, or for which no time
        remained, have the reason why they are left out.
        """
        until, tried = self._runs.left * (1 - _SCREENING), 0
        seconds: dict[int, float] = {}
        order = sorted(range(len(points)), key=lambda at: self._from_cores(points[at]))
        for at in order:
            if points[at].left_out:
                continue
            if self._runs.left < until:
                points[at] = replace(points[at], left_out="There was no time left to run it.")
                continue
            side, tried = self._side(points[at].change), tried + 1
            done = self._runs.run(side, patience=_PATIENCE)
            why = self._why_left_out(done, side)
            points[at] = replace(points[at], left_out=why)
            if not why:
                seconds[at] = done.seconds
        if tried:
            self._limits.append(f"To find the best setting, {count_of(tried, 'setting')} ran once.")
        return [points[at] for at in sorted(seconds, key=seconds.__getitem__)[:_BEST]], points

    def _from_cores(self, point: Point) -> float:
        workers, threads = (point.change.get(n, 1) for n in ("n_workers", "threads_per_worker"))
        return abs(math.log(int(workers) * int(threads) / self._host.cores))

    def _run_by_turns(self, candidates: Sequence[_Candidate]) -> None:
        """Run all candidates and the baseline alternately until the best one is certain."""
        began, rounds = self._runs.left, 0
        while candidates:
            going = [candidate for candidate in candidates if candidate.goes_on]
            order: list[_Candidate | None] = [None, *going][:: (1, -1)[rounds % 2]]
            rounds += 1
            if not going or not all(self._run_turn(candidate, rounds) for candidate in order):
                break
            _leave_out(going)
            if rounds in LOOKS and self._is_settled(candidates):
                break
            if rounds >= LOOKS[-1] or self._runs.left < (began - self._runs.left) / rounds:
                break

    def _run_turn(self, candidate: _Candidate | None, turn: int) -> bool:
        """Run a candidate, or the baseline if `candidate` is None. Return whether to continue.

        The result is False if no time remains or if the run of the baseline is not valid. `turn` is
        the number of this run among the runs of the candidate or baseline.
        """
        side = PLAIN if candidate is None else candidate.side
        done = self._runs.run(side, patience=_PATIENCE, turn=turn)
        if self._runs.is_over(done):
            return False
        fault = self._runs.fault(done, side)
        if candidate is None:
            self._limits += [fault] * bool(fault)
            self._plain += [done] * (not fault)
            return not fault
        candidate.obstacle = fault
        if not fault:
            candidate.done.append(done)
            candidate.is_over = self._runs.agreement([done]).kind == "differ"
        return True

    def _is_settled(self, candidates: Sequence[_Candidate]) -> bool:
        going = [candidate for candidate in candidates if candidate.goes_on]
        if not going:
            return True
        best = min(going, key=lambda candidate: candidate.seconds)
        if gain_of((self._plain, best.done), tests=len(candidates)).kind == "cannot tell":
            return False
        others = (candidate for candidate in going if candidate is not best)
        return all(
            gain_of((candidate.done, best.done)).kind != "cannot tell" for candidate in others
        )

    def _result(
        self, first: Done, points: Sequence[Point], candidates: Sequence[_Candidate]
    ) -> Tuning:
        tried = [
            replace(candidate.point, trial=self._trial(candidate, len(candidates)))
            for candidate in candidates
        ]
        # A candidate that stopped early has fewer runs than the others.
        most = max((len(candidate.done) for candidate in candidates), default=0)
        fit = [
            point
            for point, candidate in zip(tried, candidates, strict=True)
            if len(candidate.done) == most and _counts(point.trial)
        ]
        seconds = [done.seconds for done in self._plain]
        others = [point for point in points if not any(p.change == point.change for p in tried)]
        return Tuning(
            as_it_is=self._as_it_is(first),
            points=[
                *sorted(tried, key=lambda point: np.nan_to_num(point.measured, nan=math.inf)),
                *sorted(others, key=lambda point: np.nan_to_num(point.predicted, nan=math.inf)),
            ],
            best=min(fit, key=lambda point: point.measured, default=None),
            seconds=float(np.mean(seconds)) if seconds else math.nan,
            limits=self._limits,
            notes=self._runs.notes_of_all(),
        )

    def _trial(self, candidate: _Candidate, tests: int) -> Trial:
        sides = self._plain, candidate.done
        return self._runs.trial(
            candidate.point.change, {}, sides, obstacle=candidate.obstacle, tests=tests
        )

    def _as_it_is(self, first: Done) -> dict[str, Value]:
        if not first.clusters:
            return {}
        shape, in_processes = self._runs.shape, first.clusters[-1].get("processes", True)
        options: dict[str, Value] = {
            "n_workers": shape.workers,
            "threads_per_worker": shape.threads,
        }
        if not in_processes:
            options["processes"] = False
        elif math.isfinite(shape.memory_limit):
            options["memory_limit"] = in_gib(shape.memory_limit)
        return options

    def _side(self, change: Mapping[str, Value]) -> Variant:
        words = in_words(change)
        directory = re.sub(r"[^\w.=-]+", "_", words).strip("_-")[:80]
        return Variant(Settings.of(change), f"with {words}", directory)


def _leave_out(going: Sequence[_Candidate]) -> None:
    """Stop candidates that are clearly slower than the best one or practically equal to it."""
    best = min(going, key=lambda candidate: candidate.seconds)
    if len(best.done) < _CLEAR_AFTER:
        return
    longest = max(done.seconds for done in best.done)
    as_good = best.seconds * (1 + _CLOSE) if len(best.done) >= LOOKS[0] else 0.0
    for candidate in going:
        if candidate is not best and candidate.done:
            is_longer = min(done.seconds for done in candidate.done) > _CLEAR * longest
            candidate.is_over |= is_longer or candidate.seconds <= as_good


def _counts(trial: Trial | None) -> bool:
    return trial is not None and trial.kind not in ("no result", "no change", "results differ")
