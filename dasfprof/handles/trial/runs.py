"""`ProgramRuns`: runs a program without and with changes, and decides which runs are valid."""

from __future__ import annotations

import math
import pickle
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dasfprof.analysis.comparison.trial import LOOKS, Agreement, Gain, Trial, TriedRun, judge_gain
from dasfprof.analysis.diagnosis.registry import Value
from dasfprof.errors import TrialError
from dasfprof.handles.trial.process import Done, Program, run_program
from dasfprof.handles.trial.results import Outputs, compare_outputs
from dasfprof.handles.trial.settings import Settings, Shape
from dasfprof.text import clean, count_of, elide, format_duration, name_first

#: Time limit of a run with a change: a multiple of the time of a run without it, plus seconds.
_PATIENCE, _PATIENCE_SECONDS = 10.0, 120.0
#: Multiple of the program's usual time. A run that was stopped after more time did not end by
#: itself, even if the time limit for all runs was reached.
_HANGS = 3.0
#: Description of a program that ended its process successfully before dasfprof could finish.
_CUT_OFF = "ended its own process (for example with os._exit) before its recording had ended"
_TICK = 0.02
#: Maximum number of characters of a change or a command in messages.
_LONGEST = 100
#: Setting of Dask's config for the chunk size of arrays.
_CHUNKS = "array.chunk-size"
#: Directories for traces of baseline runs, and of the first baseline run, which is not compared.
_AS_IT_IS, _FIRST = "as-it-is", "first"


@dataclass(frozen=True)
class Variant:
    """A program with other settings, with other code, with both, or unchanged (`PLAIN`)."""

    settings: Settings
    #: Description that fits into a sentence, such as ``with n_workers=4``.
    how: str
    #: Name of the directory for its traces.
    directory: str
    #: The program with other code, or None if the code is unchanged.
    program: Program | None = None


PLAIN = Variant(Settings(), "unchanged", _AS_IT_IS)


@dataclass
class ProgramRuns:
    """The runs of a program within a time limit.

    Parameters
    ----------
    work
        Directory for temporary files.
    traces
        Directory of the traces.
    time_limit
        Seconds for all runs.
    tolerance
        Relative tolerance for floating-point numbers in results.
    tell
        Called with a sentence about each run that has ended.
    """

    program: Program
    work: Path
    traces: Path
    time_limit: float
    tolerance: float
    tell: Callable[[str], object] = lambda _: None
    #: All baseline runs. The first is not compared, because it may have read files for the first
    #: time.
    plain: list[Done] = field(default_factory=list)
    count: int = 0
    shape: Shape = field(init=False)
    _last: Variant = PLAIN
    _last_limit: float = math.nan

    #: Names of the files that the program wrote in the user's working directory.
    _written: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.time_limit

    @property
    def left(self) -> float:
        """Seconds that remain for further runs. Always positive."""
        return max(self._deadline - time.monotonic(), _TICK)

    @property
    def usual(self) -> float:
        """Duration of the first baseline run, in seconds."""
        return self.plain[0].program_seconds

    def begin(self) -> Done:
        """Run the program without a change for the first time.

        Raises
        ------
        TrialError
            If the program fails, does not end, or computes nothing that is recorded.
        """
        first = self._run(replace(PLAIN, directory=_FIRST), self.time_limit)
        if obstacle := self._why_not(first):
            raise TrialError(obstacle)
        self.shape = shape_of(first)
        self.plain.append(replace(first, runs=[]))
        return first

    def run(
        self,
        side: Variant,
        *,
        patience: float = _PATIENCE,
        with_traces: bool = False,
        turn: int = 0,
    ) -> Done:
        """Run a variant of the program once.

        The time limit is about `patience` times as long as the program's first run (see `usual`).
        `turn` is the number of this run among the runs of the variant, or 0 if it is not compared.
        The result has the traces of the run only if `with_traces` is true.
        """
        done = self._run(side, patience * self.usual + _PATIENCE_SECONDS, turn)
        if side is PLAIN and not done.is_late and done.exit_code == 0:
            self.plain.append(replace(done, runs=[]))
        # Usually only the seconds are needed, so drop the traces.
        return done if with_traces else replace(done, runs=[])

    def _run(self, side: Variant, limit: float, turn: int = 0) -> Done:
        self.count += 1
        self._last = side
        name = f"{self.count:02d}"
        traces, limit = self.traces / side.directory / name, min(limit, self.left)
        self._last_limit = limit
        program = side.program or self.program
        done = run_program(program, side.settings, self.work / name, traces, limit)
        which = f" (turn {turn} of at most {LOOKS[-1]})" if turn else ""
        self.tell(f"run {self.count}{which}, {elide(side.how, _LONGEST)}: {_ended(done)}")

        if not program.directory:
            self._written.update(dict.fromkeys(done.written or ()))
        return done

    def _why_not(self, done: Done) -> str:
        """Return why no comparison is possible after this baseline run, or an empty text."""
        if done.is_late and math.isfinite(done.program_seconds):
            return (
                f"The program ended after {format_duration(done.program_seconds)}, but its process "
                f"was still running at the time limit of {format_duration(self.time_limit)} and "
                "was stopped, so nothing can be compared. One of its threads may never end."
            )
        if done.is_late:
            return (
                f"The program did not end within {format_duration(self.time_limit)} and was "
                "stopped, so nothing can be compared. Increase --time-limit, or run dasfprof stuck "
                "to see what it waits for."
            )
        if done.exit_code != 0:
            where = " in a copy of its directory" * bool(self.program.moved)
            reason = f"({_exit(done)}){where}, so nothing was tested.{_said(done)}"
            return f"The program fails without a change {reason}"
        if math.isnan(done.program_seconds):
            return f"The program {_CUT_OFF}, so nothing can be compared. End it with sys.exit."
        if not math.isfinite(done.seconds):
            why = f" {done.refusals[0]}" if done.refusals else ""
            return (
                "The program computed nothing on a distributed cluster that could be recorded, so "
                f"nothing can be compared.{why}"
            )
        return ""

    def is_over(self, done: Done) -> bool:
        """Return whether the last run was stopped because no time remained for any run."""
        return done.is_late and self.left < 1 and self._last_limit < _HANGS * self.usual

    def fault(self, done: Done, side: Variant) -> str:
        """Return why a run is not valid, or an empty text."""
        who = f"{side.how[:1].upper()}{side.how[1:]} the program"
        if side is PLAIN:
            who = "The program without a change"
        if done.is_late:
            return (
                f"{who} did not end in time and was stopped. The first run took "
                f"{format_duration(self.usual)}."
            )
        if done.exit_code != 0 and side is PLAIN:
            return (
                f"{who} failed ({_exit(done)}), but had not failed before. Files that an earlier "
                f"run left may be the cause.{_said(done)}"
            )
        if done.exit_code != 0:
            return f"{who} fails ({_exit(done)}).{_said(done)}"
        if math.isnan(done.program_seconds):
            return f"{who} {_CUT_OFF}."
        if done.unpatched:
            return (
                "The patch had no effect, because the program imports "
                f"{name_first([clean(file) for file in done.unpatched])} and not its copy."
            )
        if side is not PLAIN and (missed := _missed(done, side.settings)):
            return f"The change had no effect: {missed}."
        if not math.isfinite(done.seconds):
            return f"{who} was not recorded to its end, so nothing can be compared."
        if done.recorded != (first := self.plain[0].recorded):
            return (
                f"{count_of(done.recorded, 'cluster')} of this run were recorded, but {first} of "
                "the first run, so the times cannot be compared."
            )
        return ""

    def agreement(self, changed: Sequence[Done]) -> Agreement:
        """Compare the results of the changed runs with the results of the baseline runs."""
        verbs = ("returns", "returned") if self.program.function else ("prints", "printed")

        def outputs(done: Done) -> Outputs:
            result = done.printed.splitlines()
            if self.program.function:
                result = [pickle.loads(done.value.read_bytes())]
            return {"": result, **(done.written or {})}

        try:
            plain, others = (list(map(outputs, side)) for side in (self.plain, changed))
        except Exception:  # Pickling and unpickling of values may raise any error.
            text = "What the function returns cannot be pickled, so results cannot be compared."
            return Agreement("not comparable", text)
        agreement = compare_outputs(plain, others, self.tolerance, verbs)
        if agreement.kind == "differ" or all(done.written is not None for done in changed):
            return agreement
        text = "Files were not compared, because the working directory has too many."
        return Agreement("in part", f"{agreement.text} {text}")

    def trial(
        self,
        change: Mapping[str, Value],
        about: Mapping[str, object],
        sides: tuple[Sequence[Done], Sequence[Done]],
        *,
        obstacle: str = "",
        tests: int = 1,
    ) -> Trial:
        """Return a comparison between runs with a change and baseline runs.

        Parameters
        ----------
        change
            The change.
        about
            Fields of `Trial` about the finding that suggested the change.
        sides
            The baseline runs, and the runs with the change.
        obstacle
            Reason why there is no result, or an empty text.
        tests
            Number of changes that are compared with the same baseline runs.
        """
        notes = self._same_chunks(sides[1], change)
        if not obstacle and not all(sides):
            obstacle = "The time limit was reached without a result. Increase --time-limit."
        if obstacle:
            return Trial(change, **about, obstacle=obstacle, notes=notes)  # type: ignore[arg-type]
        gain = gain_of(sides, tests=tests)
        if gain.pairs < LOOKS[-1] and gain.kind == "cannot tell" and self.left < 2 * self.usual:
            notes.append(
                f"The time limit was reached after {count_of(gain.pairs, 'pair')} of runs. More "
                "pairs may give a result. Increase --time-limit."
            )
        return Trial(
            change,
            **about,  # type: ignore[arg-type]
            gain=gain,
            gain_of_program=gain_of(sides, of_program=True, tests=tests),
            results=self.agreement(sides[1]),
            runs=[
                TriedRun(changed, done.seconds, done.program_seconds)
                for changed, side in zip((False, True), sides, strict=True)
                for done in side
            ],
            notes=notes,
        )

    def _same_chunks(self, changed: Sequence[Done], change: Mapping[str, Value]) -> list[str]:
        """Return a note if a setting for chunk sizes had no effect on the number of tasks."""
        tasks = self.plain[0].tasks
        if _CHUNKS not in change or not changed or any(done.tasks != tasks for done in changed):
            return []
        return [
            f"The number of tasks did not change ({tasks}). The program probably sets its chunks "
            f"itself, and {_CHUNKS} applies only to chunks that Dask chooses."
        ]

    def notes_of_all(self) -> list[str]:
        """Return a note about changed files."""
        if not self._written:
            return []
        return [
            f"Files changed in the working directory: {name_first(sorted(self._written))}. The "
            f"program ran {count_of(self.count, 'time')} and wrote its files each time. They now "
            f"have the contents of the last run, {self._last.how}, or of all runs if the program "
            "appends."
        ]


def gain_of(
    sides: tuple[Sequence[Done], Sequence[Done]], *, of_program: bool = False, tests: int = 1
) -> Gain:
    """Return the time that the runs of the second side saved, compared with the first side.

    If the sides have different numbers of runs, the last runs of the longer side are ignored. If
    `of_program` is true, the times from the start to the end of the program are compared. `tests`
    is the number of changes that are compared with the same baseline runs.
    """
    pairs = min(map(len, sides))
    before, after = (
        np.array([done.program_seconds if of_program else done.seconds for done in side[:pairs]])
        for side in sides
    )
    return judge_gain(before, after, tests=tests)


def shape_of(done: Done) -> Shape:
    """Return the shape of the cluster with the most workers in a run of the program."""
    tables = [run.trace.workers for run in done.runs]
    # The scheduler has no threads for tasks, so it is not a worker.
    workers = max((table[table["nthreads"] > 0] for table in tables), key=len)
    threads = workers["nthreads"].to_numpy(dtype=float)
    limits = workers["memory_limit"].to_numpy(dtype=float)
    distinct = len(workers[["host", "worker"]].drop_duplicates())
    known = np.isfinite(limits) & (limits > 0)
    limit = float(np.median(limits[known])) if known.any() else math.nan
    return Shape(distinct, int(np.nanmedian(threads)), limit)


def _ended(done: Done) -> str:
    if done.is_late:
        return "it did not end in time"
    if done.exit_code != 0:
        return f"it failed, {_exit(done)}"
    if math.isnan(done.program_seconds):
        return f"it {_CUT_OFF}"
    seen = math.isfinite(done.seconds)
    computed = f", {format_duration(done.seconds)} of it computing" if seen else ""
    return f"{format_duration(done.program_seconds)}{computed}"


def _exit(done: Done) -> str:
    if done.exit_code < 0:
        known = -done.exit_code in set(signal.Signals)
        return signal.Signals(-done.exit_code).name if known else f"signal {-done.exit_code}"
    return f"exit code {done.exit_code}"


def _said(done: Done) -> str:
    """Return a sentence that quotes the last line of a run's stderr, or "" if that is empty."""
    more = ". Its standard input is empty." if done.complaint.startswith("EOFError") else ""
    return f" Its last output: {done.complaint}{more}" if done.complaint else ""


def _missed(done: Done, settings: Settings) -> str:
    """Return a clause that says why settings had no effect, or an empty text."""
    if (settings.options or settings.environment) and not done.clusters:
        return (
            "the program creates no LocalCluster, and no Client that creates one. The cluster that "
            "it connects to is started outside of it"
        )
    missed = {name for cluster in done.clusters for name in cluster["missed"]}
    names = sorted(missed | set(done.missed_config))
    if names:
        return f"the program sets {', '.join(map(clean, names))} itself"
    return ""
