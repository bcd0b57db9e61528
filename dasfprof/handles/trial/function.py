"""`try_`: a function is run as it is and with a change, in turns."""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from distributed.protocol.pickle import dumps

from dasfprof.analysis.comparison.trial import Trial
from dasfprof.errors import InvalidArgumentError
from dasfprof.handles.trial.process import Program
from dasfprof.handles.trial.runs import ProgramRuns
from dasfprof.handles.trial.settings import checked
from dasfprof.handles.trial.trial import Trials


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
    """Run a function as it is and with a change, and say what that gains and how sure it is.

    Each run is in a process of its own, with a cluster of its own, and recorded; runs as it is and
    with the change are in turns, three to nine pairs. What the function returns has to be equal.

    Parameters
    ----------
    function
        What to run. It makes its own ``Client`` or ``LocalCluster``; or, if it has a parameter
        without a default, is given a client. It is pickled, with what it needs of a notebook.
    changes
        What to change together, by name: ``n_workers``, ``threads_per_worker``, ``processes`` and
        ``memory_limit`` of local clusters (``"more"``: twice as many, ``"fewer"``: half);
        variables of the environment, in capitals; settings of Dask's config, with dots. None: what
        the findings of a first run say, the best first, until one gains.
    cluster
        Options of the ``LocalCluster`` whose client the function is given.
    directory
        Where to keep the traces; None: they are not kept.
    time_limit
        Seconds for all runs.
    tolerance
        The share by which floats of results may differ.
    parameter
        The variable of the environment by which the function takes a whole number that says how
        large its chunks or batches are: what findings say of these is tried by it.

    Returns
    -------
    Trial
        ``print(trial)`` says what it gained; ``kind``, ``gain``, ``results``, ``promised``,
        ``runs`` and ``notes`` have it as data.

    Raises
    ------
    TrialError
        If the function raises as it is, does not end, or computes nothing on a cluster.
    InvalidArgumentError
        If there is no such setting, or the function cannot be pickled.

    Examples
    --------
    >>> dasfprof.try_(compute, {"threads_per_worker": 1, "n_workers": 4})  # doctest: +SKIP
    """
    change = None if changes is None else {n: checked(n, value) for n, value in changes.items()}
    if any(name.startswith("-") for name in (*(change or {}), parameter)):
        raise InvalidArgumentError(
            "a function is given no arguments of a command: name a variable."
        )
    with tempfile.TemporaryDirectory(prefix="dasfprof-try-") as place:
        program = program_of(function, cluster, Path(place))
        traces = Path(place, "traces") if directory is None else Path(directory)
        runs = ProgramRuns(program, Path(place) / "runs", traces, time_limit, tolerance)
        tried = Trials(runs, parameter).try_all(change)
    best = next((trial for trial in tried if trial.kind == "gained"), tried[0])
    best.notes.extend(f"Tried as well: {trial}" for trial in tried if trial is not best)
    return best


def program_of(
    function: Callable[..., object], cluster: Mapping[str, object] | None, place: Path
) -> Program:
    """Pickle a function into a directory, to be run in processes of their own; see `try_`.

    Raises
    ------
    InvalidArgumentError
        If it cannot be pickled.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
        takes_client = any(one.default is one.empty for one in parameters)
        options = dict(cluster or {}) if takes_client else None
        payload = dumps((list(sys.path), dumps(function), options))
    except Exception as error:
        raise InvalidArgumentError(
            f"{function!r} cannot be pickled, to be run in another process: {error}"
        ) from error
    source = place / "function"
    source.write_bytes(payload)
    name = getattr(function, "__name__", "function")
    return Program(name.strip("<>"), function=str(source))
