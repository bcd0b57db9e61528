"""Keeps all answers about a fixed set of runs, and compares them with those of changed code.

``python tests/kept_answers.py keep DIR`` before a change, ``... compare DIR`` after it: every
question by all that it can be grouped by, the attributes of the tables (the figures of the
findings are among them), the files of every export format, and the page. The runs are planned,
random, damaged, without an end, with GPUs and, with ``--recorded PROGRAM ...``, of the corpus; they
lie in ``DIR/runs``, so that both are asked of the same files. Compared are all bytes but those of
numbers in tables, where 1e-9 is let pass.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import pickle
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from hypothesis import Phase, given, seed, settings

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS / "analysis"), str(TESTS / "validation" / "corpus")]

from large_requests import in_parts, requests  # noqa: E402
from random_runs import random_run  # noqa: E402
from test_gpu_utilisation import with_results  # noqa: E402
from traces import ANY_RUNS, Plan, T, Task, made_trace  # noqa: E402
from traces.hung import Hung, ended_in, hung  # noqa: E402
from traces.noisy import Noisy  # noqa: E402

from dasfprof import TraceAnalyser  # noqa: E402
from dasfprof.analysis.tables import questions  # noqa: E402
from dasfprof.report.formats import FORMATS  # noqa: E402

#: What questions with arguments are asked.
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "what_if": [{"workers": 3}, {"bandwidth": 1e6}, {"speedup": {"load": 2.0}}],
    "memory_at": [{"time": 0.5}, {"time": 7.0, "by": "worker"}],
    "memory_forecast": [{"workers": 4}],
}
#: What the scheduler alone tells of runs.
UNSEEN = {"run_id": 99, "worker": "tcp://10.0.0.1:4001", "waiting": T}
RANDOM = 12


def write_runs(place: Path, programs: list[str]) -> None:
    """Write the files of the runs, a directory each."""
    noisy = Noisy(megabytes=4.0, gap=0.3)
    noisy.write(place / "noisy", 1)
    Noisy(chunks=400, megabytes=0.5, serial=True).write(place / "many", 2)
    for name in ("torn", "headless", "bereft"):
        noisy.write(place / name, 3)
    damage(place)
    _planned().write_files(place / "planned")
    with_results(place / "gpu_memory")
    open_run = Hung(
        open={"f-1": {}, "f-2": {"state": "fetching"}, "f-3": {"state": "long-running"}},
        ended=[("g-1", 0.0, 5.0), ("g-2", 5.0, 12.0)],
        runs=[{"key": "h-1", "known": 18.5, "state": "released", "why": "remove-worker"}],
        left=(18.5, "handle-worker-cleanup"),
        states=hung().states,
        closed=False,
    )
    open_run.write(place / "open")
    hung(left=(20.0, "nanny-close")).write(place / "left")
    ended_in("ValueError()", 16.0, 16.5, 17.0).write(place / "raised")
    if programs:
        from run import record

        for program in programs:
            record(program, place)


def _planned() -> Plan:
    """Plan a run with a bit of all: failures, thefts, GPUs, samples, a worker that leaves."""
    tasks = [
        Task(f"load-{n}", n % 2, 1.0 + n // 4, 1.7 + n // 4, thread=n // 2 % 2, cpu=0.3, size=2**22)
        for n in range(16)
    ]
    tasks += [
        Task(
            f"use-{n}",
            n % 2,
            6.0 + n // 2,
            6.5 + n // 2,
            dependencies=[f"load-{n}", f"load-{n + 1}"],
            state="erred" if n == 3 else "memory",
            exception="ValueError('bad')" if n == 3 else None,
            run_queue=0.1,
            disk_read=0.05,
            disk_read_size=10_000,
            arguments="x=1",
            seceded=6.2 + n // 2 if n == 4 else None,
        )
        for n in range(8)
    ]
    return Plan(
        tasks,
        hosts=["a", "b"],
        cores=4,
        memory_limit=2**30,
        transfers=[(1, 5.8, 5.9, 2**22, ["load-1"]), (0, 6.8, 6.95, 2**22, ["load-2"])],
        held=[(w, float(t), {"size": t * 10**7, "tasks": t}) for w in (0, 1) for t in range(12)],
        used=[(w, float(t), {"memory": t * 2**25, "cpu": 90.0}) for w in (0, 1) for t in range(12)],
        gpu=[(float(t), {"utilization": 50 + t, "memory_used": t * 2**20}) for t in range(10)],
        stands={"use": [("read", "/home/me/work.py", 7), ("use", "/home/me/work.py", 3)]},
        locks=[(0, "the-lock", 6.0, 6.1, 6.4), (1, "the-lock", 6.0, 6.4, 6.5)],
        unseen=[
            {**UNSEEN, "key": "lost-1", "timestamp": T + 7.0, "duration": 2.0, "state": "memory"},
            {**UNSEEN, "key": "lost-2", "timestamp": T + 9.0, "duration": 2.0, "state": "released"},
        ],
        left=[(1, 11.0, "handle-worker-cleanup")],
        client_calls=[(0.2, 11.0, "compute", {})],
        releases=True,
        calls=[(0, 2.0, 2.5)],
    )


def damage(place: Path) -> None:
    """Tear a worker's file, remove the scheduler's, and remove a worker's."""
    torn = sorted((place / "torn").glob("*TracePlugin*"))[0]
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size * 2 // 3])
    for name, pattern in (("headless", "*SchedulerPlugin*"), ("bereft", "*TracePlugin*")):
        sorted((place / name).glob(pattern))[0].unlink()


def _random_traces() -> Iterator[tuple[str, Any]]:
    for number in range(RANDOM):
        yield f"random-{number}", made_trace(**random_run(number))
    found: list[list[dict[str, Any]]] = []

    @seed(0)
    @settings(max_examples=RANDOM, database=None, phases=[Phase.generate], deadline=None)
    @given(ANY_RUNS)
    def collect(runs: list[dict[str, Any]]) -> None:
        found.append(runs)

    collect()
    for number, runs in enumerate(found):
        yield f"any-{number}", made_trace(runs, workers=({}, {}))


def answers(place: Path) -> Iterator[tuple[str, Any]]:
    """Ask everything of all runs; yield names and answers."""
    for name, trace in _random_traces():
        yield from asked(name, TraceAnalyser(trace, progress=False))
    for directory in sorted(path for path in place.iterdir() if path.is_dir()):
        files = sorted(directory.glob("*.msgpack"))
        analyser = TraceAnalyser(files, progress=False)
        yield from asked(directory.name, analyser)
        yield from written_files(directory.name, analyser)
    parts = in_parts(sorted((place / "many").glob("*.msgpack")))
    wanted = list(requests())
    parts.prepare(wanted)
    for request in wanted:
        yield f"many/parts/{request.file_stem}", answer(request, parts)


def asked(name: str, analyser: TraceAnalyser) -> Iterator[tuple[str, Any]]:
    """Ask every question of a run."""
    for question in questions.all():
        more: list[dict[str, Any]] = list(ARGUMENTS.get(question.name, []))
        if not question.needs_arguments:
            more += [{"by": by} for by in question.further_groupings]
        more += [] if question.needs_arguments else [{}]
        for arguments in more:
            request = questions.Request(question, arguments)
            yield f"{name}/{request.file_stem}", answer(request, analyser)


def answer(request: questions.Request, analyser: TraceAnalyser) -> Any:
    """Return a table and its attributes, or what was raised instead."""
    try:
        table = request.table(analyser)
    except KeyError:
        return "KeyError"  # tables made without files lack columns
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return table, repr(sorted({**table.attrs, **_findings_as_data(request, analyser)}.items()))


def _findings_as_data(request: questions.Request, analyser: TraceAnalyser) -> dict[str, Any]:
    """Return what the table of findings does not show of them, by name; empty for other tables."""
    if request.question.name != "diagnose":
        return {}
    findings = analyser.findings(**request.arguments)
    data = [one.to_dict() for one in findings]
    return {
        "changes": [each["Changes"] for each in data],
        "costs": [one.weight for one in findings],
        "figures": [each["Figures"] for each in data],
        "places": [one.places and asdict(one.places) for one in findings],
    }


def written_files(name: str, analyser: TraceAnalyser) -> Iterator[tuple[str, Any]]:
    """Write a run in all formats and as a page; yield digests of what was written."""
    with tempfile.TemporaryDirectory() as scratch:
        for chosen in FORMATS:
            try:
                analyser.export(Path(scratch, f"to-{chosen}"), to=chosen, title="it")
            except Exception as error:
                yield f"{name}/{chosen}", f"{type(error).__name__}: {error}"
        analyser.report(Path(scratch, "it.html"), title="it")
        for path in sorted(path for path in Path(scratch).rglob("*") if path.is_file()):
            content = path.read_bytes()
            if content[:2] == b"\x1f\x8b":  # its head has the time
                content = gzip.decompress(content)
            yield f"{name}/{path.relative_to(scratch)}", hashlib.sha256(content).hexdigest()


def difference(kept: Any, found: Any) -> str | None:
    """Say how an answer differs from the one that was kept."""
    if isinstance(kept, str) or isinstance(found, str):
        return None if kept == found else f"{kept!s:.200} is now {found!s:.200}"
    try:
        pd.testing.assert_frame_equal(kept[0], found[0], rtol=1e-9, atol=1e-9)
    except AssertionError as error:
        return str(error)
    return None if kept[1] == found[1] else f"{kept[1]:.1000} is now {found[1]:.1000}"


def main() -> int:
    """Keep answers, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["keep", "compare"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--recorded", nargs="*", default=[], metavar="PROGRAM")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    place, kept = options.directory.resolve() / "runs", options.directory / "answers.pickle"
    if options.what == "keep":
        if not place.exists():
            write_runs(place, options.recorded)
        found = dict(answers(place))
        kept.write_bytes(pickle.dumps(found))
        print(f"kept {len(found)} answers")
        return 0
    before, wrong = pickle.loads(kept.read_bytes()), 0
    for name, now in answers(place):
        said = difference(before.pop(name, "nothing"), now)
        if said is not None:
            wrong += 1
            print(f"--- {name}\n{said}", flush=True)
    wrong += len(before)
    print(f"{wrong} answers differ, of which {len(before)} are gone: {list(before)[:9]}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
