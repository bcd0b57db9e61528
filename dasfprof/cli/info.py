"""``dasfprof info``: the contents of trace files, and the events that were lost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasfprof.cli.sources import client_option, open_source, price_option
from dasfprof.errors import SourceNotFoundError
from dasfprof.report.documents import json_of, schema_of
from dasfprof.report.terminal.console import Paragraph, echo, heading, print_entry, terminal_width
from dasfprof.text import (
    clean,
    count_of,
    elide,
    format_date,
    format_duration,
    format_size,
    job_words,
    name_first,
)

if TYPE_CHECKING:
    from dasfprof.analysis.trace.gaps import Note
    from dasfprof.cli.contents import FileContents
    from dasfprof.database.runs import TraceFiles
    from dasfprof.handles.analyser import TraceAnalyser

_MAX_VALUE = 400
#: Kinds of notes about lost data, and those of them about files that are missing.
_LOSSES = (
    *("header-lost", "damaged-file", "unknown-events", "dropped-facts", "caught-errors"),
    *("not-closed", "lost-events", "segment-missing", "lost-task-runs"),
)
_ABSENT = ("file-missing", "no-worker-files", "no-scheduler-file")
#: Packages whose versions are listed first.
_PACKAGES = ("dasfprof", "dask", "distributed", "python")


@click.command()
@click.argument("source", default=".")
@price_option
@client_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def info(source: str, name: str | None, *, as_json: bool) -> None:
    """Show what trace files contain and which events were lost.

    SOURCE takes the same forms as in `dasfprof analyse`. The default is the working directory. If a
    directory contains several runs, they are listed and the newest is shown.

    The JSON document has "schema", "runs" and, for a single run, "files". Unknown values are null.

    \b
    Examples:
      dasfprof info
      dasfprof info traces/Tutorial_5
      dasfprof info --json traces | jq '.runs[].run'
    """
    from dasfprof.cli.contents import read_all_contents
    from dasfprof.database import find_runs
    from dasfprof.database.storage import find_stored_runs, is_url

    directory = Path(source)
    runs: Sequence[TraceFiles] = ()
    if is_url(source):
        with suppress(SourceNotFoundError):  # The source is a URL of one run.
            runs = find_stored_runs(source)
    elif directory.is_dir():
        runs = find_runs(directory)
    if len(runs) > 1:
        (_runs_as_json if as_json else _list_runs)(source, runs)
        if as_json or is_url(source) or not runs[0].created > runs[1].created:
            return
        echo()
    database = open_source(source)
    contents = read_all_contents(database.databases)
    from dasfprof.handles.analyser import TraceAnalyser
    from dasfprof.report.run_summary import cost_in_words, run_cost

    analyser = TraceAnalyser(database, client=name, progress=False)
    is_directory = not directory.is_file()
    notes = [note for note in analyser.in_memory.notes if is_directory or note.kind not in _ABSENT]
    cost = None if analyser.is_in_parts else run_cost(analyser.run)
    if as_json:
        _run_as_json(contents, notes, cost)
        return
    # The scheduler's process may still be running although its file was truncated.
    unclosed = {note.subject for note in notes if note.kind == "not-closed"}
    for file in contents:
        if file.goes_on and file.path.name in unclosed:
            file.state = "not closed"
    _print_run(source, contents)
    _print_notes(notes, _without_files(analyser) if is_directory else [])
    if name is not None:
        tasks = analyser.processed_tasks("function")
        attempts, failed = int(tasks["Total"].sum()), int(tasks["Failed"].sum())
        _entry(
            "client", f"{name}: {count_of(attempts, 'attempt')} at tasks, {failed} of them failed"
        )
    if cost is not None:
        _entry("cost", cost_in_words(cost))
    for file in contents:
        _print_file(file)


def _list_runs(source: str, runs: Sequence[TraceFiles]) -> None:
    import pandas as pd

    from dasfprof.report.terminal.tables import format_table

    rows = []
    for run in runs:
        began = format_date(run.created) if run.created else "unknown"
        row: dict[str, Any] = {"Run": run.name, "Began (UTC)": began}
        if run.files:  # The sizes of files in a storage are not listed, because requests take time.
            size = format_size(sum(path.stat().st_size for path in run.files))
            row |= {"Files": len(run.files), "Size": size}
        rows.append(row)
    heading(f"{len(runs)} runs in {clean(source)}")
    echo(format_table(pd.DataFrame(rows), terminal_width()))
    example = os.path.join(source, runs[0].name)
    echo(f"\nTo see one of them: dasfprof info {elide(example, _MAX_VALUE)}")


def _print_run(source: str, contents: list[FileContents]) -> None:
    """Print what the headers and events of a run's files contain."""
    names = sorted({str(file.fact("run")) for file in contents if file.fact("run")})
    title = f"Run {', '.join(names) or source}"
    heading(elide(title, terminal_width()))
    _entry("recorded", _when(contents))
    servers = [file for file in contents if file.owner()]
    for text in _owners(servers, lambda file: str(file.fact("host"))):
        _entry("host", text)
    for command in sorted({str(file.fact("command") or "") for file in contents} - {""}):
        _entry("command", elide(command, _MAX_VALUE))
    for text in _owners(contents, lambda file: job_words(file.fact("job"))):
        _entry("job", text)
    for versions in sorted({_versions(file) for file in contents} - {""}):
        _entry("versions", versions)
    events = sum((file.events for file in contents), Counter[str]())
    size = format_size(sum(file.size for file in contents))
    files = count_of(len(contents), "file")
    _entry("holds", f"{files}, {size}, {count_of(events.total(), 'event')}")
    open_files = sum(file.goes_on for file in contents)
    if open_files:
        words = f"{count_of(open_files, 'file')} of {len(contents)} still being written"
        _entry("in progress", f"{words}; dasfprof watch {clean(source)}")


def _print_notes(notes: list[Note], without_files: list[str]) -> None:
    """Print what a run lost, and then the other notes about missing data.

    `without_files` has the addresses of workers that have no file.
    """
    if any(note.kind == "goes-on" for note in notes):
        # Workers have yet to write these task runs.
        notes = [note for note in notes if note.kind != "lost-task-runs"]
    lost = [note.text for note in notes if note.kind in (*_LOSSES, *_ABSENT)]
    if without_files:
        lost.append(
            f"{count_of(len(without_files), 'worker')} without a file: {name_first(without_files)}."
            " They were not recorded, or their files are on their own disks or were deleted."
        )
    for text in lost or ["nothing"]:
        _entry("lost", text)
    for note in notes:
        if note.kind not in (*_LOSSES, *_ABSENT, "goes-on"):
            _entry("note", note.text)


def _without_files(analyser: TraceAnalyser) -> list[str]:
    """Return the addresses of workers that are known only from the scheduler's file."""
    workers = analyser.in_memory.workers
    named = zip(workers["worker"], workers["address"], strict=True)
    return sorted(str(address) for label, address in named if address and label == address)


def _owners(contents: list[FileContents], group_of: Callable[[FileContents], str]) -> Iterator[str]:
    """Yield a text per group of files, with the group's name and the processes that wrote them.

    `group_of` returns the name of a file's group, such as its host, or an empty text.
    """
    owners: dict[str, set[str]] = {}
    for file in contents:
        if group := group_of(file):
            owners.setdefault(group, set()).add(file.owner() or "client")
    for group, names in sorted(owners.items()):
        workers = len(names - {"scheduler", "client"})
        parts = [count_of(workers, "worker")] if workers else []
        parts += [name for name in ("scheduler", "client") if name in names]
        yield f"{group}: {', '.join(parts)}"


def _print_file(file: FileContents) -> None:
    from dasfprof.cli.contents import CONTINUED

    echo(f"\n{elide(file.path.name, terminal_width())}")
    about = [format_size(file.size), file.state]
    if file.state == CONTINUED or file.fact("segment"):
        about.insert(1, f"segment {file.fact('segment') or 1}")
    if file.fact("plugin"):
        about.insert(0, str(file.fact("plugin")))
    if file.fact("pid"):
        about.append(f"process {file.fact('pid')} on {file.fact('host')}")
    _entry(file.owner() or "file", ", ".join(about))
    counts = ", ".join(f"{name} {count:,}" for name, count in file.events.most_common())
    _entry("events", counts or "none")


def _entry(name: str, text: str) -> None:
    """Print a name, followed by a text that is wrapped and aligned."""
    head = f"  {elide(name, 30):<12} "
    print_entry(head, None, [Paragraph(elide(text, _MAX_VALUE * 4))])


def _when(contents: list[FileContents]) -> str:
    begin, end = _span(contents)
    if begin is None or end is None:
        return "no events"
    seconds = format_duration(end - begin)
    if any(file.is_dasf for file in contents):
        return f"{seconds}, on clocks that started with their host"
    return f"{format_date(begin)} UTC, {seconds}"


def _span(contents: list[FileContents]) -> tuple[float | None, float | None]:
    """Return the times of the first event and of the last event, or None if there are no events."""
    times = [time for file in contents for time in (file.first, file.last) if time is not None]
    return min(times, default=None), max(times, default=None)


def _versions(file: FileContents) -> str:
    versions = file.fact("versions")
    if not isinstance(versions, dict):
        return ""
    return ", ".join(f"{name} {versions[name]}" for name in _PACKAGES if versions.get(name))


def _runs_as_json(_source: str, runs: Sequence[TraceFiles]) -> None:
    listed = [{"run": run.name, "began": run.created, "files": len(run.files)} for run in runs]
    click.echo(json_of({"schema": schema_of("info"), "runs": listed, "files": []}))


def _run_as_json(
    contents: list[FileContents], notes: list[Note], cost: dict[str, Any] | None
) -> None:
    """Print what is known about a run and each of its files as JSON."""
    begin, end = _span(contents)
    run = {
        "run": next((str(file.fact("run")) for file in contents if file.fact("run")), None),
        "began": begin,
        "ended": end,
        "files": len(contents),
        "versions": next((file.fact("versions") for file in contents if _versions(file)), None),
        "cost": cost,
        "notes": [note.text for note in notes],
    }
    files = [
        {
            "file": file.path.name,
            "size": file.size,
            "plugin": file.fact("plugin"),
            "host": file.fact("host"),
            "process": file.fact("pid"),
            "owner": file.owner() or None,
            "job": file.fact("job"),
            "state": file.state,
            "closed": file.is_closed,
            "events": dict(file.events),
            "lost": [note.text for note in notes if note.subject == file.path.name],
        }
        for file in contents
    ]
    click.echo(json_of({"schema": schema_of("info"), "runs": [run], "files": files}))
