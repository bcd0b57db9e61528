"""Store all analyses of a fixed set of runs, and compare them with those of changed code.

Call ``python tests/kept_answers.py keep DIR`` before a change, and ``... compare DIR`` after it.
The answers are the tables of all analyses with all groupings, their attributes (such as figures of
findings), the files of all export formats, and the HTML page. The runs are planned, random,
damaged, and unfinished runs, runs with GPUs and, with ``--recorded PROGRAM ...``, programs of the
corpus. They are stored in ``DIR/runs``, so that both commands read the same files. Numbers in
tables may differ by 1e-9; everything else must be equal.
"""

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

#: Arguments of analyses that have any.
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "what_if": [{"workers": 3}, {"bandwidth": 1e6}, {"speedup": {"load": 2.0}}],
    "memory_at": [{"time": 0.5}, {"time": 7.0, "by": "worker"}],
    "memory_forecast": [{"workers": 4}],
}
#: Facts of a task run that only the scheduler recorded.
UNSEEN = {"run_id": 99, "worker": "tcp://10.0.0.1:4001", "waiting": T}
RANDOM = 12


def write_runs(place: Path, programs: list[str]) -> None:
    """Write the files of each run to a separate directory."""
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
    """Plan a run with failures, stolen tasks, GPUs, samples, and a worker that leaves."""
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
    """Truncate a worker's file in one run, and remove the scheduler's or a worker's in others."""
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
    """Yield names and answers of all analyses of a run."""
    for question in questions.all():
        more: list[dict[str, Any]] = list(ARGUMENTS.get(question.name, []))
        if not question.needs_arguments:
            more += [{"by": by} for by in question.further_groupings]
        more += [] if question.needs_arguments else [{}]
        for arguments in more:
            request = questions.Request(question, arguments)
            yield f"{name}/{request.file_stem}", answer(request, analyser)


def answer(request: questions.Request, analyser: TraceAnalyser) -> Any:
    """Return a table and its attributes, or the raised exception as text."""
    try:
        table = request.table(analyser)
    except KeyError:
        return "KeyError"  # tables made without files lack columns
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return table, repr(sorted({**table.attrs, **_findings_as_data(request, analyser)}.items()))


def _findings_as_data(request: questions.Request, analyser: TraceAnalyser) -> dict[str, Any]:
    """Return facts about findings that their table does not show, or {} for other tables."""
    if request.question.name != "diagnose":
        return {}
    findings = analyser.findings(**request.arguments)
    data = [finding.to_dict() for finding in findings]
    return {
        "changes": [each["Changes"] for each in data],
        "costs": [finding.weight for finding in findings],
        "figures": [each["Figures"] for each in data],
        "places": [finding.places and asdict(finding.places) for finding in findings],
    }


def written_files(name: str, analyser: TraceAnalyser) -> Iterator[tuple[str, Any]]:
    """Write a run in all formats and as a page, and yield digests of the files."""
    with tempfile.TemporaryDirectory() as scratch:
        for chosen in FORMATS:
            try:
                analyser.export(Path(scratch, f"to-{chosen}"), to=chosen, title="it")
            except Exception as error:
                yield f"{name}/{chosen}", f"{type(error).__name__}: {error}"
        analyser.report(Path(scratch, "it.html"), title="it")
        for path in sorted(path for path in Path(scratch).rglob("*") if path.is_file()):
            content = path.read_bytes()
            if content[:2] == b"\x1f\x8b":  # its header contains the time
                content = gzip.decompress(content)
            yield f"{name}/{path.relative_to(scratch)}", hashlib.sha256(content).hexdigest()


def difference(stored: Any, current: Any) -> str | None:
    if isinstance(stored, str) or isinstance(current, str):
        return None if stored == current else f"{stored!s:.200} is now {current!s:.200}"
    try:
        pd.testing.assert_frame_equal(stored[0], current[0], rtol=1e-9, atol=1e-9)
    except AssertionError as error:
        return str(error)
    return None if stored[1] == current[1] else f"{stored[1]:.1000} is now {current[1]:.1000}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["keep", "compare"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--recorded", nargs="*", default=[], metavar="PROGRAM")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    place, file = options.directory.resolve() / "runs", options.directory / "answers.pickle"
    if options.what == "keep":
        if not place.exists():
            write_runs(place, options.recorded)
        current = dict(answers(place))
        file.write_bytes(pickle.dumps(current))
        print(f"stored {len(current)} answers")
        return 0
    before, wrong = pickle.loads(file.read_bytes()), 0
    for name, current_answer in answers(place):
        change = difference(before.pop(name, "nothing"), current_answer)
        if change is not None:
            wrong += 1
            print(f"--- {name}\n{change}", flush=True)
    wrong += len(before)
    print(f"{wrong} answers differ, of which {len(before)} are missing: {list(before)[:9]}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
