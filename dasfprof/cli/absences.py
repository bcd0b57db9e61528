"""What the files of a run tell of others of it that are not here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dasfprof.text import count_of

if TYPE_CHECKING:
    from dasfprof.cli.contents import FileContents

#: Workers that are named.
_MOST_NAMED = 3
#: Plugins as the headers of their files name them.
_TASKS, _SAMPLES, _SCHEDULER = "TracePlugin", "ResourceMonitor", "SchedulerPlugin"


def absences(contents: list[FileContents]) -> Iterator[str]:
    """Yield which files of a run are not among some, as these tell, in words."""
    plugins = {file.fact("plugin") for file in contents}
    if plugins & {_TASKS, _SAMPLES} and _SCHEDULER not in plugins:
        yield "of the scheduler: it is elsewhere, or gone"
    workers = _by_address(contents)
    absent = sorted(_known(contents) - workers.keys())
    if absent:
        ran = sum(_task_runs(contents)[address] for address in absent)
        yield (
            f"of {_named(absent)}; it was not recorded, or its file stayed on its own disk, or is "
            f"gone{_of_runs(ran)}"
        )
    yield from _absent_files(contents)


def lost_task_runs(contents: list[FileContents]) -> tuple[int, int]:
    """Return how many task runs the scheduler saw end, and how many of them are in no file here.

    Of workers whose files are whole, or still written, none is: these record more than the
    scheduler sees.
    """
    seen, workers = _task_runs(contents), _by_address(contents)
    lost = 0
    for address, count in seen.items():
        files = [file for file in workers.get(address, []) if file.fact("plugin") == _TASKS]
        is_whole = all(file.goes_on or (file.is_closed and not file.losses) for file in files)
        if not files or not is_whole:
            lost += max(count - sum(file.events["Compute"] for file in files), 0)
    return seen.total(), lost


def _absent_files(contents: list[FileContents]) -> Iterator[str]:
    """Yield the files that others of the same worker name."""
    from dasfprof.database.absent_files import absent_files

    by_plugin: dict[str, list[str]] = defaultdict(list)
    seen = _task_runs(contents)
    for worker, address, plugin in absent_files(file.header for file in contents):
        by_plugin[plugin].append(worker)
        if plugin == _TASKS:
            seen[""] += seen[address]
    for plugin, names in sorted(by_plugin.items()):
        ran = _of_runs(seen[""]) if plugin == _TASKS else ""
        yield f"of {plugin} of {_named(sorted(names))}: it is elsewhere, or gone{ran}"


def _by_address(contents: list[FileContents]) -> dict[str, list[FileContents]]:
    found: dict[str, list[FileContents]] = defaultdict(list)
    for file in contents:
        found[str(file.fact("worker", "address"))].append(file)
    return found


def _known(contents: list[FileContents]) -> set[str]:
    """Return the addresses of all workers that the scheduler tells of."""
    return set().union(*(file.joined | file.task_runs.keys() for file in contents))


def _task_runs(contents: list[FileContents]) -> Counter[str]:
    return sum((file.task_runs for file in contents), Counter[str]())


def _named(workers: list[str]) -> str:
    more = f" and {len(workers) - _MOST_NAMED} more" if len(workers) > _MOST_NAMED else ""
    return f"{count_of(len(workers), 'worker')}: {', '.join(workers[:_MOST_NAMED])}{more}"


def _of_runs(count: int) -> str:
    return f"; the scheduler saw {count_of(count, 'task run')} end there" if count else ""
