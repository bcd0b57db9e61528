"""The JSON of speedscope, a viewer of flame graphs in a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof.analysis.under_way.state import Frame, Stack
from dasfprof.report.json_text import without_surrogates
from dasfprof.report.sampled_stacks import sampled_stacks

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write_speedscope(analyser: Analyser, path: Path, title: str) -> None:
    """Write a profile of all tasks, and of each function, phase of the client and event loop."""
    numbers: dict[Frame, int] = {}
    groups = sorted(sampled_stacks(analyser.run), key=lambda group: -group.seconds)
    tasks = [pair for group in groups if group.of == "tasks" for pair in group.stacks]
    profiles = [_profile("tasks", tasks, numbers)]
    profiles += [_profile(f"{group.of}: {group.name}", group.stacks, numbers) for group in groups]
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


def _profile(
    name: str, stacks: list[tuple[Stack, float]], numbers: dict[Frame, int]
) -> dict[str, Any]:
    """Return a profile; frames that are new get numbers."""
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
