"""``dasfprof analyse --patch``: the edits that findings suggest, as a unified diff."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.text import clean

if TYPE_CHECKING:
    from dasfprof.analysis.diagnosis.registry import Edit, Finding


def edits_of(findings: Iterable[Finding]) -> list[Edit]:
    """Return the edits that findings suggest, but only the first edit of each line."""
    edits: dict[tuple[str, int], Edit] = {}
    for finding in findings:
        for change in (*finding.settings, *(c for part in finding.advice for c in part.changes)):
            if change.edit:
                edits.setdefault((change.edit.file, change.edit.number), change.edit)
    return list(edits.values())


def patch_of(edits: Iterable[Edit]) -> tuple[str, list[str]]:
    """Return a diff of the files that edits change, and reasons why files are missing from it."""
    diff, obstacles = "", []
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.file, []).append(edit)
    for file, of_file in by_file.items():
        try:
            before = Path(file).read_text(encoding="utf-8").splitlines(keepends=True)
        except (OSError, UnicodeDecodeError):
            obstacles.append(f"{clean(file)} cannot be read on this computer.")
            continue
        after = list(before)
        for edit in of_file:
            line = "".join(before[edit.number - 1 : edit.number])
            if line.strip() == edit.old:
                after[edit.number - 1] = line.replace(edit.old, edit.new)
            else:
                obstacles.append(f"{clean(file)}:{edit.number} has changed since the run.")
        name = os.path.relpath(file)
        name = file if name.startswith(os.pardir) else name
        for line in unified_diff(before, after, f"a/{name}", f"b/{name}"):
            diff += line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
    return diff, obstacles
