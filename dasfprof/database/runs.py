"""`Run`, the files of one run in one place, and the choice among several of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from dasfprof.errors import InvalidArgumentError, SourceNotFoundError


@dataclass
class Run:
    """The files of one run in one place."""

    name: str
    #: Creation of its first file, in Unix seconds; 0 for DASF's.
    created: float = 0.0
    files: list[Path] = field(default_factory=list)


AnyRun = TypeVar("AnyRun", bound=Run)


def choose_run(runs: Sequence[AnyRun], prefix: str, place: str, source: str) -> AnyRun:
    """Return the run whose name is a text, or begins with it; the newest of those of one name.

    Parameters
    ----------
    runs
        The runs of one place, the newest first.
    prefix
        The text.
    place
        The directory, or its URL.
    source
        What the user gave.

    Raises
    ------
    SourceNotFoundError
        If there is none.
    InvalidArgumentError
        If several match that have different names.
    """
    matching = [run for run in runs if run.name == prefix]
    matching = matching or [run for run in runs if run.name.startswith(prefix)]
    names = sorted({run.name for run in matching})
    if not names:
        found = ", ".join(sorted({run.name for run in runs})) or "none"
        raise SourceNotFoundError(
            f"no trace file, directory, pattern or run {source!r}; runs found in {place}: "
            f"{found}. Pass a file, a directory, a glob or a prefix of a run's name."
        )
    if len(names) > 1:
        raise InvalidArgumentError(
            f"{source!r} holds {len(names)} runs: {', '.join(names)}. Name one of them, "
            f"for example {os.path.join(place, names[-1])!r}."
        )
    if len(matching) > 1:
        warnings.warn(
            f"{len(matching)} runs are named {names[0]!r}; the newest is opened. Pass a glob of "
            "their files to open another.",
            stacklevel=3,
        )
    return matching[0]
