"""`Trials`: runs a program as it is and with changes, and says what each has gained."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from dask.utils import parse_bytes

from dasfprof.analysis.comparison.trial import (
    LOOKS,
    Agreement,
    Trial,
    TriedRun,
    in_words,
    judge_gain,
)
from dasfprof.analysis.diagnosis.changes import OF_PROGRAMS, Value
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError, TrialError
from dasfprof.handles.trial.process import Done, Program, run_program, seconds_until
from dasfprof.handles.trial.results import (
    changed_files,
    compare_prints,
    compare_values,
    files_here,
)
from dasfprof.handles.trial.settings import Settings, Shape, in_numbers
from dasfprof.text import clean, count_of, format_duration, format_size

#: A run with a change is ended after so many times what one without takes, and some seconds.
_PATIENCE, _PATIENCE_SECONDS = 10.0, 120.0
#: Of runs as they are and with the change, those of a pair in turns: what changes by and by on the
#: machine meets both.
_TURNS = ((False, True), (True, False))
#: Directories of the traces of both sides, and of the first run, which is not compared.
_SIDES, _FIRST = ("as-it-is", "changed"), "first"


@dataclass(frozen=True)
class Suggested:
    """A change, and the finding that says it."""

    change: Mapping[str, Value]
    rule: str = ""
    finding: str = ""
    promised: float = math.nan
    condition: str = ""


@dataclass
class Trials:
    """The runs of a program, and what was tried.

    Parameters
    ----------
    program
        What to run.
    work
        A directory for what is not kept.
    traces
        The directory of the traces.
    time_limit
        Seconds for all runs.
    tolerance
        The share by which numbers of results may differ.
    tell
        Called with a sentence of each run that has ended.
    """

    program: Program
    work: Path
    traces: Path
    time_limit: float
    tolerance: float
    tell: Callable[[str], object] = lambda _: None
    #: All runs as they are, the first of which is not compared: files were read for the first time.
    plain: list[Done] = field(default_factory=list)
    count: int = 0
    last_changed: bool = False
    shape: Shape = field(init=False)

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.time_limit

    def try_all(self, change: Mapping[str, Value] | None) -> list[Trial]:
        """Try a change, or, without one, what findings say: the best first, until one gains.

        Raises
        ------
        TrialError
            If the program fails as it is, does not end, or computes nothing that is recorded.
        """
        had = files_here()
        first = self._run(Settings(), self.time_limit)
        if obstacle := self._why_not(first):
            raise TrialError(obstacle)
        self.shape = shape_of(first)
        found, unfit = suggestions(first) if change is None else ([Suggested(change)], "")
        self.plain.append(replace(first, runs=[]))
        if not found:
            return [Trial({}, obstacle=unfit)]
        tried = self._try_each(found)
        if changed := changed_files(had, self.traces):
            last = "with the change" if self.last_changed else "as it is"
            tried[-1].notes.append(
                f"Files changed in the working directory meanwhile: {', '.join(changed)}. The "
                f"program ran {count_of(self.count, 'time')}, and wrote what it writes as often; "
                f"what is there now is of the last run, {last}, or has been added to by each."
            )
        return tried

    def _try_each(self, found: Sequence[Suggested]) -> list[Trial]:
        tried: list[Trial] = []
        usual = self.plain[0].program_seconds
        for suggested in found:
            if tried and seconds_until(self._deadline) < 2 * LOOKS[0] * usual:
                break
            tried.append(self._try(suggested))
            if tried[-1].kind == "gained":
                break
        left = found[len(tried) :]
        if left:
            words = "; ".join(f"{in_words(one.change)} ({one.rule})" for one in left)
            tried[-1].notes.append(f"Findings say as well, and it was not tried: {words}.")
        return tried

    def _run(self, settings: Settings, limit: float) -> Done:
        self.count += 1
        self.last_changed = settings != Settings()
        side = _SIDES[self.last_changed] if self.plain else _FIRST
        name = f"{self.count:02d}"
        limit = min(limit, seconds_until(self._deadline))
        done = run_program(
            self.program, settings, self.work / name, self.traces / side / name, limit
        )
        how = "with the change" if self.last_changed else "as it is"
        if self.plain:  # what is asked of its trace is its seconds alone
            done = replace(done, runs=[])
        self.tell(f"run {self.count}, {how}: {_ended(done)}")
        return done

    def _why_not(self, done: Done) -> str:
        """Say why a program that did so as it is cannot be compared; empty if it can."""
        if done.is_late:
            return (
                f"The program did not end within {format_duration(self.time_limit)}, so it was "
                "ended: nothing can be compared. Give more time with --time-limit, or see what "
                "it waits for with dasfprof stuck."
            )
        if done.exit_code != 0 or math.isnan(done.program_seconds):
            last = f" Its last words: {done.complaint}" if done.complaint else ""
            return f"The program fails as it is ({_exit(done)}): nothing was tried.{last}"
        if not math.isfinite(done.seconds):
            why = f" {done.refusals[0]}" if done.refusals else ""
            return (
                "The program ran nothing on a distributed cluster that could be recorded: nothing "
                f"can be compared.{why}"
            )
        return ""

    def _try(self, suggested: Suggested) -> Trial:
        """Run in pairs until it is certain what a change gains, or that it gains nothing."""
        about: dict[str, Any] = {
            "rule": suggested.rule,
            "finding": suggested.finding,
            "promised": suggested.promised,
        }
        shape = self.shape
        try:
            change = in_numbers(suggested.change, shape)
        except InvalidArgumentError as error:
            return Trial(suggested.change, **about, obstacle=f"Nothing was tried: {error}")
        if suggested.rule and (obstacle := _beyond_memory(change, shape)):
            return Trial(change, **about, obstacle=obstacle)
        # What findings say is of a cluster as large as it was, also where Dask chose how large.
        of_findings = {"n_workers": shape.workers, "threads_per_worker": shape.threads}
        settings = Settings.of(change, defaults=of_findings if suggested.rule else None)
        sides: tuple[list[Done], list[Done]] = ([], [])
        begin, obstacle = time.monotonic(), ""
        while not obstacle:
            for changed in _TURNS[len(sides[1]) % 2]:
                done = self._run_side(changed, settings)
                is_over = done.is_late and seconds_until(self._deadline) < 1
                obstacle = "" if is_over else self._fault(done, changed, settings)
                if is_over or obstacle:
                    break
                sides[changed].append(done)
            pairs = min(map(len, sides))
            each = (time.monotonic() - begin) / max(pairs, 1)
            if pairs >= LOOKS[-1] or seconds_until(self._deadline) < each:
                break
            if pairs in LOOKS and self._gain(sides).kind != "cannot tell":
                break
        return self._told(change, about, sides, obstacle, suggested.condition)

    def _run_side(self, changed: bool, settings: Settings) -> Done:
        usual = _PATIENCE * self.plain[0].program_seconds + _PATIENCE_SECONDS
        done = self._run(settings if changed else Settings(), usual)
        if not changed and not done.is_late and done.exit_code == 0:
            self.plain.append(done)
        return done

    def _fault(self, done: Done, changed: bool, settings: Settings) -> str:
        """Say why a run says nothing of the change; empty if it does."""
        usual = format_duration(self.plain[0].program_seconds)
        who = "With the change the program" if changed else "The program as it is"
        if done.is_late:
            took = _PATIENCE * self.plain[0].program_seconds + _PATIENCE_SECONDS
            return (
                f"{who} had not ended after {format_duration(took)}, at first it took {usual}: it "
                "was ended."
            )
        if done.exit_code != 0 or math.isnan(done.program_seconds):
            last = f" Its last words: {done.complaint}" if done.complaint else ""
            ended = "fails" if changed else "failed, though it had not before"
            return f"{who} {ended} ({_exit(done)}).{last}"
        if changed and (missed := _missed(done, settings)):
            return f"The change never reached a cluster: {missed}."
        if not math.isfinite(done.seconds):
            return f"{who} was not recorded to its end: nothing can be compared."
        if done.recorded != (first := self.plain[0].recorded):
            return (
                f"{who} had {count_of(done.recorded, 'cluster')} recorded, at first {first}: their "
                "times cannot be compared."
            )
        return ""

    @staticmethod
    def _gain(sides: tuple[list[Done], list[Done]], of_program: bool = False) -> Any:
        pairs = min(map(len, sides))
        before, after = (_seconds(side[:pairs], of_program) for side in sides)
        return judge_gain(before, after)

    def _told(
        self,
        change: Mapping[str, Value],
        about: Mapping[str, Any],
        sides: tuple[list[Done], list[Done]],
        obstacle: str,
        condition: str,
    ) -> Trial:
        notes = [f"The finding's words hold if {condition}."] if condition else []
        notes += _already(sides[1], change)
        if not obstacle and not all(sides):
            obstacle = "The time was up before it could be told: give more with --time-limit."
        if obstacle:
            return Trial(change, **about, obstacle=obstacle, notes=notes)
        gain, whole = self._gain(sides), self._gain(sides, of_program=True)
        if len(sides[1]) < LOOKS[-1] and gain.kind == "cannot tell":
            notes.append(
                f"The time was up after {count_of(len(sides[1]), 'pair')} of runs: more of them "
                "may tell. Give more with --time-limit."
            )
        runs = [
            TriedRun(changed, done.seconds, done.program_seconds)
            for changed, side in zip((False, True), sides, strict=True)
            for done in side
        ]
        return Trial(
            change,
            **about,
            gain=gain,
            gain_of_program=whole,
            results=self._agreement(sides[1]),
            runs=runs,
            notes=notes,
        )

    def _agreement(self, changed: Sequence[Done]) -> Agreement:
        if not self.program.function:
            printed = [[done.printed for done in side] for side in (self.plain, changed)]
            return compare_prints(printed[0], printed[1], self.tolerance)
        try:
            values = [
                [pickle.loads(done.value.read_bytes()) for done in side]
                for side in (self.plain, changed)
            ]
        except Exception:  # of values that no pickle takes, or that unpickle nowhere else
            text = "What the function returns cannot be pickled: results cannot be compared."
            return Agreement("not comparable", text)
        return compare_values(values[0], values[1], self.tolerance)


def shape_of(done: Done) -> Shape:
    """Return the cluster of a run: of several the largest."""
    tables = [run.trace.workers for run in done.runs]
    # A scheduler has no threads for tasks.
    workers = max((table[table["nthreads"] > 0] for table in tables), key=len)
    threads = workers["nthreads"].to_numpy(dtype=float)
    limits = workers["memory_limit"].to_numpy(dtype=float)
    distinct = len(workers[["host", "worker"]].drop_duplicates())
    known = np.isfinite(limits) & (limits > 0)
    limit = float(np.median(limits[known])) if known.any() else math.nan
    return Shape(distinct, int(np.nanmedian(threads)), limit)


def _beyond_memory(change: Mapping[str, Value], shape: Shape) -> str:
    """Say that all workers together might take more memory than this host has, if so."""
    limit = change.get("memory_limit", 0)
    of_all = parse_bytes(limit) * int(change.get("n_workers", shape.workers))
    there = psutil.virtual_memory().total
    if of_all <= there:
        return ""
    return (
        f"It was not tried: {count_of(shape.workers, 'worker')} might take {format_size(of_all)} "
        f"then, and this host has {format_size(there)}. --change tries it nevertheless."
    )


def suggestions(done: Done) -> tuple[list[Suggested], str]:
    """Return what the findings of a run say to set, by seconds at stake; or why there is nothing.

    What has no seconds, as it cures no loss of time, is not tried.
    """
    tables = [run.findings for run in done.runs]
    found: list[tuple[float, Suggested]] = []
    own: list[str] = []
    for table in tables:
        for place, row in enumerate(table.to_dict("records")):
            weight = float(table.attrs["costs"][place])
            for data in table.attrs["changes"][place]:
                change, rule = data["settings"], str(row["Rule"])
                if any(name in OF_PROGRAMS for name in change):
                    own.append(f"{in_words(change)} ({rule})")
                elif weight > 0:
                    promised = float(row["Seconds at stake (s)"])
                    words = data["condition"] or ""
                    one = Suggested(change, rule, str(row["Finding"]), promised, words)
                    found.append((weight, one))
    found.sort(key=lambda each: -each[0])
    distinct = {in_words(one.change): one for _, one in reversed(found)}
    best = [one for _, one in found if distinct[in_words(one.change)] is one]
    if best:
        return best, ""
    count = sum(map(len, tables))
    if not count:
        return [], "None of the known faults was found: there is nothing to try."
    said = f" In the program's own code: {'; '.join(own)}." if own else ""
    return [], (
        f"No finding says a setting that can be tried ({count_of(count, 'finding')}). Give one "
        f"with --change, or see what they say with dasfprof run.{said}"
    )


def _seconds(side: Sequence[Done], of_program: bool) -> Array:
    return np.array([d.program_seconds if of_program else d.seconds for d in side], dtype=float)


def _ended(done: Done) -> str:
    if done.is_late:
        return "it did not end in time"
    if done.exit_code != 0 or math.isnan(done.program_seconds):
        return f"it failed, {_exit(done)}"
    seen = math.isfinite(done.seconds)
    computed = f", {format_duration(done.seconds)} of it computing" if seen else ""
    return f"{format_duration(done.program_seconds)}{computed}"


def _exit(done: Done) -> str:
    if done.exit_code < 0:
        return f"signal {-done.exit_code}"
    return f"exit code {done.exit_code}"


def _missed(done: Done, settings: Settings) -> str:
    """Say what of a change did not get there; empty if all did."""
    if (settings.options or settings.environment) and not done.clusters:
        return (
            "the program makes no LocalCluster, nor a Client that makes one; what it connects to "
            "is started elsewhere"
        )
    missed = {name for cluster in done.clusters for name in cluster["missed"]}
    names = sorted(missed | set(done.missed_config))
    if names:
        return f"the program sets {', '.join(map(clean, names))} itself"
    return ""


def _already(changed: Sequence[Done], change: Mapping[str, Value]) -> list[str]:
    """Say that the program itself had a change already, if so."""
    given = [cluster["given"] for done in changed for cluster in done.clusters]
    wanted = {name: repr(value) for name, value in change.items()}
    if given and all(each == wanted for each in given):
        return ["The program sets just that itself: both sides are the same."]
    return []
