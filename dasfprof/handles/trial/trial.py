"""`try_all`: runs a program alternately with and without changes.

`try_` does this for a function.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import psutil
from dask.utils import parse_bytes
from distributed.protocol.pickle import dumps

from dasfprof.analysis.comparison.comparison import changed_findings
from dasfprof.analysis.comparison.trial import LOOKS, OF_CODE, Trial, in_words
from dasfprof.analysis.diagnosis.registry import OF_PROGRAMS, Value
from dasfprof.errors import InvalidArgumentError
from dasfprof.handles.trial.process import Done, Program
from dasfprof.handles.trial.runs import PLAIN, ProgramRuns, Variant, gain_of
from dasfprof.handles.trial.settings import Settings, Shape, checked, in_numbers
from dasfprof.text import count_of, format_size

#: Order of the runs in a pair (with the change or not). It alternates, so that slow drifts of the
#: host affect both sides.
_TURNS = ((False, True), (True, False))


@dataclass(frozen=True)
class Suggested:
    """A change to test, and the finding that suggests it, if any."""

    change: Mapping[str, Value]
    rule: str = ""
    finding: str = ""
    promised: float = math.nan
    #: The program with other code, or None if the change has only settings.
    program: Program | None = None

    def variant(self, change: Mapping[str, Value], shape: Shape) -> Variant:
        """Return the variant of the program that runs with a change.

        The change must have numbers instead of ``more`` and ``fewer``. If a finding suggested the
        change, the variant also sets the recorded numbers of workers and threads, unless the change
        sets them.
        """
        # A finding applies only to the recorded numbers of workers and threads.
        recorded = {"n_workers": shape.workers, "threads_per_worker": shape.threads}
        settings = {name: value for name, value in change.items() if name not in OF_CODE}
        return Variant(
            Settings.of(settings, defaults=recorded if self.rule else None),
            f"with {in_words(change)}",
            "changed",
            self.program,
        )


def try_all(
    runs: ProgramRuns,
    change: Mapping[str, Value] | None,
    program: Program | None = None,
    parameter: str = "",
) -> list[Trial]:
    """Test a change, or test the changes that findings suggest until one saves time.

    Parameters
    ----------
    runs
        The runs of the program.
    change
        Settings and code by name, or None for the changes that findings suggest.
    program
        The program with other code, if the change contains code.
    parameter
        Argument or environment variable that sets the size of the program's chunks or batches, so
        that suggestions about these can be tested. Empty if there is none.

    Raises
    ------
    TrialError
        If the program fails without a change, does not end, or computes nothing that is
        recorded.
    """
    first = runs.begin()
    if change is not None:
        changes, obstacle = [Suggested(change, program=program)], ""
    else:
        as_setting = partial(as_parameter, parameter, runs.program.command[1:])
        changes, obstacle = suggestions(first, as_setting)
    if not changes:
        return [Trial({}, obstacle=obstacle)]
    tried: list[Trial] = []
    for suggested in changes:
        if tried and runs.left < 2 * LOOKS[0] * runs.usual:
            break
        tried.append(_try(runs, suggested))
        if tried[-1].kind == "gained":
            break
    if left := changes[len(tried) :]:
        words = "; ".join(f"{in_words(change.change)} ({change.rule})" for change in left)
        tried[-1].notes.append(f"Other suggestions of findings that were not tested: {words}.")
    tried[-1].notes.extend(runs.notes_of_all())
    return tried


def _try(runs: ProgramRuns, suggested: Suggested) -> Trial:
    """Run the program in pairs, without and with a change, until the saved time is certain."""
    about: dict[str, Any] = {
        "rule": suggested.rule,
        "finding": suggested.finding,
        "promised": suggested.promised,
    }
    try:
        change = in_numbers(suggested.change, runs.shape)
    except InvalidArgumentError as error:
        return Trial(suggested.change, **about, obstacle=f"Nothing was tested: {error}")
    if suggested.rule and (obstacle := beyond_memory(change, runs.shape)):
        return Trial(change, **about, obstacle=obstacle)
    changed = suggested.variant(change, runs.shape)
    sides: tuple[list[Done], list[Done]] = ([], [])
    began, obstacle, is_over = runs.left, "", False
    while not (obstacle or is_over):
        for is_changed in _TURNS[len(sides[1]) % 2]:
            side = changed if is_changed else PLAIN
            turn = len(sides[is_changed]) + 1
            of_findings = suggested.program is not None and turn <= LOOKS[0]
            done = runs.run(side, turn=turn, with_traces=of_findings)
            is_over = runs.is_over(done)
            obstacle = "" if is_over else runs.fault(done, side)
            if is_over or obstacle:
                break
            sides[is_changed].append(done)
        pairs = min(map(len, sides))
        if pairs >= LOOKS[-1] or runs.left < (began - runs.left) / max(pairs, 1):
            break
        if pairs in LOOKS and gain_of(sides).kind != "cannot tell":
            break
    trial = runs.trial(change, about, sides, obstacle=obstacle)
    if suggested.program is None or trial.gain is None or trial.gain.pairs < LOOKS[0]:
        return trial
    before, after = ([run for done in side for run in done.runs] for side in sides)
    return trial.answering(changed_findings(before, after))


def beyond_memory(change: Mapping[str, Value], shape: Shape) -> str:
    """Return a warning if all workers together may need more memory than this host has, or ""."""
    limit = change.get("memory_limit", 0)
    of_all = parse_bytes(limit) * int(change.get("n_workers", shape.workers))
    there = psutil.virtual_memory().total
    if of_all <= there:
        return ""
    return (
        f"It was not tested: {count_of(shape.workers, 'worker')} might need "
        f"{format_size(of_all)}, but this host has {format_size(there)}. Use --change to test it "
        "anyway."
    )


#: Function that converts the data of a change in the program's code to settings, or returns None.
_AsSetting: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Value] | None]


def suggestions(done: Done, as_setting: _AsSetting) -> tuple[list[Suggested], str]:
    """Return the settings that the findings of a run suggest, and an explanation if there are none.

    Settings are ordered by potential savings. If there are settings, the explanation is empty.
    `as_setting` is called with the data of each suggested change. If it returns settings, they
    replace the settings of the change.
    """
    findings = [finding for run in done.runs for finding in run.findings]
    weighted: list[tuple[float, Suggested]] = []
    in_code: list[str] = []
    for finding in findings:
        for data in finding.to_dict()["Changes"]:
            change = as_setting(data) or data["settings"]
            if any(name in OF_PROGRAMS for name in change):
                in_code.append(f"{in_words(change)} ({finding.rule})")
            elif finding.weight > 0:
                about = finding.rule, finding.text, finding.seconds
                weighted.append((finding.weight, Suggested(change, *about)))
    weighted.sort(key=lambda each: -each[0])
    distinct: dict[str, Suggested] = {}
    for _, suggested in weighted:
        distinct.setdefault(in_words(suggested.change), suggested)
    if distinct:
        return [*distinct.values()], ""
    count = len(findings)
    if not count:
        return [], "No known problem was found, so there is nothing to test."
    said = f" In the program's own code: {'; '.join(in_code)}." if in_code else ""
    if any("persist" in words for words in in_code):
        said += " Add persist() yourself, because only the program knows what it uses again."
    if any(name in words for words in in_code for name in ("chunks", "batch")):
        said += (
            " If an argument or an environment variable sets their size, pass its name with "
            "--parameter."
        )
    return [], (
        f"No finding suggests a setting that can be tested ({count_of(count, 'finding')}). Pass "
        f"one with --change, or read the findings with dasfprof run.{said}"
    )


def as_parameter(
    name: str, arguments: Sequence[str], data: Mapping[str, Any]
) -> Mapping[str, Value] | None:
    """Return a parameter with its value multiplied by the factor that a finding suggests.

    The parameter sets the size of chunks or batches. `name` is an argument or an environment
    variable. The factor is ``data["times"]``. Without a name or a factor, the result is None.

    Raises
    ------
    InvalidArgumentError
        If the value of the parameter is not an integer.
    """
    if not name or not data["times"]:
        return None
    value = given_value(name, arguments)
    if not value.isdecimal():
        raise InvalidArgumentError(
            f"{name}={value!r}: expected the program to get an integer with it, which can be "
            "increased."
        )
    return {name: str(max(round(int(value) * data["times"]), 1))}


def given_value(name: str, arguments: Sequence[str]) -> str:
    """Return the value that an argument or an environment variable passes to a program."""
    for place, argument in enumerate(arguments):
        if argument == name:
            return "".join(arguments[place + 1 : place + 2])
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return os.environ.get(name, "")


def try_(
    function: Callable[..., object],
    changes: Mapping[str, int | bool | str] | None = None,
    *,
    cluster: Mapping[str, object] | None = None,
    directory: str | os.PathLike[str] | None = None,
    time_limit: float = 600.0,
    tolerance: float = 1e-6,
    parameter: str = "",
) -> Trial:
    """Run a function with and without a change, and report the time that the change saves.

    Each run is recorded in a separate process, with a new cluster. The function runs once without
    the change. Then it runs in three to nine pairs, without and with the change, until the result
    is certain. The function must return the same value each time.

    Parameters
    ----------
    function
        The function. It creates its own ``Client`` or ``LocalCluster``. If it has a parameter
        without a default, it gets a client instead. It is pickled, with the parts of a notebook
        that it uses.
    changes
        Settings to change together, by name: ``n_workers``, ``threads_per_worker``, ``processes``
        and ``memory_limit`` of local clusters (also ``"more"`` for twice the value, and ``"fewer"``
        for half of it), environment variables in capitals, and settings of Dask's config with
        dots. By default, the changes that the findings of a first run suggest are tested, the most
        promising first, until one saves time.
    cluster
        Options of the ``LocalCluster`` of the client that the function gets.
    directory
        Directory for the traces. By default, they are deleted.
    time_limit
        Seconds for all runs.
    tolerance
        Relative tolerance for floating-point numbers in results.
    parameter
        Name of an environment variable with which the function gets the size of its chunks or
        batches as an integer. The sizes that the findings suggest are tested.

    Returns
    -------
    Trial
        ``print(trial)`` shows the time saved. ``kind``, ``gain``, ``results``, ``promised``,
        ``runs`` and ``notes`` have the result as data.

    Raises
    ------
    TrialError
        If the function fails without a change, does not finish, or computes nothing on a cluster.
    InvalidArgumentError
        If there is no such setting, or the function cannot be pickled.

    Examples
    --------
    >>> dasfprof.try_(compute, {"threads_per_worker": 1, "n_workers": 4})  # doctest: +SKIP
    """
    change = None if changes is None else {n: checked(n, value) for n, value in changes.items()}
    if any(name.startswith("-") for name in (*(change or {}), parameter)):
        raise InvalidArgumentError(
            "a function has no command arguments. Pass the name of an environment variable."
        )
    with tempfile.TemporaryDirectory(prefix="dasfprof-try-") as place:
        program = program_of(function, cluster, Path(place))
        traces = Path(place, "traces") if directory is None else Path(directory)
        runs = ProgramRuns(program, Path(place) / "runs", traces, time_limit, tolerance)
        tried = try_all(runs, change, parameter=parameter)
    best = next((trial for trial in tried if trial.kind == "gained"), tried[0])
    best.notes.extend(f"Also tested: {trial}" for trial in tried if trial is not best)
    return best


def program_of(
    function: Callable[..., object], cluster: Mapping[str, object] | None, place: Path
) -> Program:
    """Pickle a function into a directory, so that separate processes can run it. See `try_`.

    Raises
    ------
    InvalidArgumentError
        If the function cannot be pickled.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
        takes_client = any(parameter.default is parameter.empty for parameter in parameters)
        options = dict(cluster or {}) if takes_client else None
        payload = dumps((list(sys.path), dumps(function), options))
    except Exception as error:
        raise InvalidArgumentError(
            f"{function!r} cannot be pickled for another process: {error}"
        ) from error
    source = place / "function"
    source.write_bytes(payload)
    name = getattr(function, "__name__", "function")
    return Program(name.strip("<>"), function=str(source))
