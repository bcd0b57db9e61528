"""Stack samples in the JSON format of speedscope, a viewer of flame graphs in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import all_stacks
from dasfprof.analysis.stack_samples.spent import Samples, run_of_samples
from dasfprof.analysis.under_way.state import Frame, Stack
from dasfprof.database.columns import Array
from dasfprof.report.documents import without_surrogates

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser

#: Stack that represents an unknown stack.
_UNKNOWN = (Frame("(unknown)", "", 0),)
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


#: Distinct stacks and their seconds.
Seconds = list[tuple[Stack, float]]


def samples_beside_tasks(run: Run) -> Iterator[tuple[str, pd.DataFrame, Array, list[str]]]:
    """Yield the client's samples, grouped by phase, and those of event loops, grouped by worker.

    Each item has a title, the samples, the index of each sample's group, and the names of the
    groups.
    """
    if len(run.client_samples):
        phases = run.client_samples["phase"].astype("category").cat
        codes = phases.codes.to_numpy(dtype=np.int64)
        yield "client", run.client_samples, codes, [str(phase) for phase in phases.categories]
    table = run.loop_samples
    table = table[table["until"].isna()] if len(table) else table
    if len(table):
        labels = run.workers["worker"].astype(object).tolist()
        yield "event loops", table, table["worker_id"].to_numpy(dtype=np.int64), labels


def _groups(
    run: Run, of: str, table: pd.DataFrame, codes: Array, names: list[str]
) -> Iterator[tuple[str, Seconds]]:
    frames, samples = all_stacks(run), Samples.from_table(table)
    groups, places = np.unique(codes * (len(frames) + 1) + samples.stack + 1, return_inverse=True)
    seconds = np.bincount(places.reshape(-1), samples.interval, len(groups))
    by_code: dict[int, Seconds] = {}
    for group, spent in zip(groups.tolist(), seconds.tolist(), strict=True):
        code, stack = divmod(group, len(frames) + 1)
        known = frames[stack - 1] if stack else ()
        by_code.setdefault(code, []).append((known or _UNKNOWN, spent))
    for code, stacks in by_code.items():
        yield f"{of}: {names[code] if code >= 0 else '(unknown)'}", stacks


def write_speedscope(analyser: Analyser, path: Path, title: str) -> None:
    """Write a profile of all tasks, and one for each function, client phase and event loop."""
    run, numbers = analyser.run, dict[Frame, int]()
    #: Title of each profile, and the distinct stacks with their seconds.
    groups: list[tuple[str, Seconds]] = []
    runs = run_of_samples(run)
    if len(runs):
        functions = run.task_runs["function"].cat
        codes = np.r_[functions.codes.to_numpy(dtype=np.int64), -1][runs]
        groups += _groups(run, "tasks", run.task_samples, codes, list(functions.categories))
    for of, table, codes, names in samples_beside_tasks(run):
        groups += _groups(run, of, table, codes, names)
    groups.sort(key=lambda group: -sum(seconds for _, seconds in group[1]))
    tasks = [pair for name, stacks in groups if name.startswith("tasks: ") for pair in stacks]
    profiles = [_profile(*group, numbers) for group in [("tasks", tasks), *groups]]
    frames = [
        {
            "name": without_surrogates(frame.function),
            "file": without_surrogates(frame.file),
            **({"line": frame.line} if frame.line > 0 else {}),
        }
        for frame in numbers
    ]
    content = {
        "$schema": _SCHEMA,
        "exporter": "dasfprof",
        "name": title,
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }
    path.write_text(json.dumps(content), encoding="utf-8")


def _profile(name: str, stacks: Seconds, numbers: dict[Frame, int]) -> dict[str, Any]:
    """Return the profile of the given stacks with their seconds, as an object for speedscope.

    `numbers` maps frames to their numbers in the file. New frames are added to it.
    """
    return {
        "type": "sampled",
        "name": name,
        "unit": "seconds",
        "startValue": 0,
        "endValue": sum(seconds for _, seconds in stacks),
        "samples": [
            [numbers.setdefault(frame, len(numbers)) for frame in stack] for stack, _ in stacks
        ],
        "weights": [seconds for _, seconds in stacks],
    }
