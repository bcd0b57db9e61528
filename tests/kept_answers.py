"""Keeps all that is said of a fixed set of runs, and compares it with what a later dasfprof says.

``python tests/kept_answers.py keep DIR`` writes the runs into ``DIR/runs``, where they are not yet
there, and the answers into ``DIR/answers``; ``compare DIR`` asks the same of the same files, and
prints each difference. What is asked: all questions by all that they can be grouped by, the
summary, the causes of what did not end, all exports, the facts and columns of the report's page,
comparisons and histories of runs.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import gzip
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
#: Tests whose planned runs are kept, besides those that are written here.
PLANNED = (
    "test_causes.py",
    "test_diagnosis.py",
    "test_diagnosis_rules.py",
    "test_events_one_by_one.py",
    "test_gpu_utilisation.py",
    "test_processed_tasks.py",
    "test_steps.py",
    "test_time_accounting.py",
    "test_trace_tables.py",
    "test_transfers.py",
    "test_under_way_tables.py",
    "test_unfinished_rules.py",
)
LARGE = 50_000
#: Of runs of more tasks, what takes long is left out: their tables hold the same.
FEW_TASKS = 5000
#: Of questions with further arguments.
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "what_if": [{"workers": 3}, {"speedup": {"f": 2.0}}, {"spill": False, "bandwidth": 1e8}],
    "scaling": [{"workers": [1, 3]}],
    "hot_lines": [{"function": "load"}],
    "task_counts": [{"interval": 0.5}],
}
#: Names of the randomly named: of files and directories of this process.
_TEMPORARY = re.compile(r"/tmp/[\w./-]*")


# --- runs ----------------------------------------------------------------------------------------


def write_runs(directory: Path) -> None:
    """Write all runs, each into a directory of its own."""
    write_planned(directory / "planned")
    write_made(directory / "made")
    write_recorded(directory / "recorded" / "demo")
    write_damaged(directory)
    _find_tests()
    import bench_report

    large = directory / "large" / "synthetic"
    large.mkdir(parents=True)
    bench_report.write_trace(large, LARGE, samples=1)


def _find_tests() -> None:
    """Make the modules beside tests and benchmarks importable."""
    places = (HERE, HERE / "report", HERE / "analysis", HERE.parent / "benchmarks")
    sys.path[:0] = [str(place) for place in places if str(place) not in sys.path]


def write_planned(directory: Path) -> None:
    """Keep the runs that tests of the analysis plan."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [str(HERE / "analysis" / name) for name in PLANNED]
    command += ["-o", "tmp_path_retention_policy=all", f"--basetemp={directory.absolute()}"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False, cwd=HERE.parent)
    for link in [path for path in directory.rglob("*") if path.is_symlink()]:
        link.unlink()


def write_made(directory: Path) -> None:
    """Write plans at random, noisy pipelines, and the runs that tests of the report have."""
    _find_tests()
    from compared_runs import write_sampled, write_steps
    from exported_traces import MORE_EVENTS
    from sampled_runs import write_sampled_run
    from traces import record
    from traces.hung import ended_in, hung
    from traces.noisy import Noisy

    directory.mkdir()
    for seed in range(20):
        random_plan(seed).write_files(directory / f"random-{seed}")
    for seed in range(3):
        Noisy().write(directory / f"noisy-{seed}", seed)
        Noisy(times={"clean": 1.6}, workers=3).write(directory / f"noisy-slow-{seed}", seed + 10)
    write_sampled_run(directory / "sampled")
    write_steps(directory / "steps")
    write_sampled(directory / "sampled-too", {"f": 1.0, "g": 2.0})
    record(directory / "everything", MORE_EVENTS)
    hung().write(directory / "hung")
    hung(closed=False).write(directory / "hung-killed")
    ended_in("KeyboardInterrupt()", 16.0, 16.5, 17.0).write(directory / "hung-ended")


def random_plan(seed: int) -> Any:
    """Plan a run with something of everything: times lie in no order that a recorder guarantees."""
    from traces import Plan, Task

    random = np.random.default_rng(seed)
    workers, threads = int(random.integers(1, 4)), int(random.integers(1, 4))

    def some(most: float) -> float:
        return float(np.round(random.uniform(0, most), 3))

    def seldom(value: Any, share: float = 0.2, other: Any = None) -> Any:
        return value if random.random() < share else other

    free = np.zeros((workers, threads))
    tasks: list[Any] = []
    for number in range(int(random.integers(5, 60))):
        worker, thread = int(random.integers(workers)), int(random.integers(threads))
        arrival = some(5)
        executing = max(arrival + some(0.3), float(free[worker, thread]))
        start = executing + some(0.02)
        stop = start + float(np.round(random.exponential(0.5), 3))
        free[worker, thread] = stop
        inputs = (
            [tasks[int(place)].key for place in random.integers(0, number, 2)] if number else []
        )
        failed = random.random() < 0.1
        tasks.append(
            Task(
                f"{'fgh'[number % 3]}-{seldom(max(number - 4, 0), 0.1, number)}",
                worker,
                start,
                stop,
                cpu=seldom(some(stop - start), 0.5),
                run_queue=seldom(some(0.1), 0.3, 0.0),
                arrival=arrival,
                executing=executing,
                seceded=seldom((start + stop) / 2, 0.1),
                thread=thread,
                size=int(random.integers(0, 10_000_000)),
                dependencies=sorted(set(inputs)),
                state="erred" if failed else "memory",
                exception="ValueError('no')" if failed else None,
                raised_at="/home/me/work.py:7 f" if failed else None,
                disk_read=seldom(some(0.01), 0.2, 0.0),
                deserialize=seldom(some(0.01), 0.2, 0.0),
            )
        )
    end = max(task.stop for task in tasks)
    moved = [(int(random.integers(workers)), some(end), some(1), int(random.integers(1e7)), ["f-0"])
             for _ in range(int(random.integers(0, 9)))]  # fmt: skip
    states = ["running", "running", "paused"]
    held = [
        (worker, at, {"state": str(random.choice(states)), "tasks": int(random.integers(9)),
                      "size": int(random.integers(1e9))})
        for worker in range(workers)
        for at in np.linspace(0, end, 12).tolist()
    ]  # fmt: skip
    used = [
        (worker, at, {"cpu": some(300), "memory": int(random.integers(1e9))})
        for worker in range(workers)
        for at in np.linspace(0, end, 12).tolist()
    ]
    return Plan(
        tasks,
        workers,
        threads,
        hosts=seldom([f"node{number % 2}" for number in range(workers)], 0.5, ()),
        graphs=(0.0, *(some(end) for _ in range(int(random.integers(0, 3))))),
        transfers=[
            (worker, at, at + length, size, keys) for worker, at, length, size, keys in moved
        ],
        calls=seldom([(0, some(end), end + 1.0)], 0.3),
        held=held,
        used=used,
        gpu=seldom([(at, {"utilization": some(100)}) for at in np.linspace(0, end, 9)], 0.3, []),
        left=seldom([(workers - 1, end - some(0.5), "nanny-close")], 0.3, []),
        memory_limit=2_000_000_000,
        scheduler=random.random() < 0.8,
        killed=seldom([0], 0.3, ()),
        run=f"random-{seed}",
    )


def write_recorded(directory: Path) -> None:
    """Record the demo on a cluster of this machine."""
    command = [
        str(Path(sys.executable).parent / "dasfprof"),
        "demo",
        "--size",
        "small",
        "--directory",
    ]
    subprocess.run([*command, str(directory)], stdout=subprocess.DEVNULL, check=True)
    shutil.rmtree(directory / "data")


def write_damaged(directory: Path) -> None:
    """Copy runs with files that are cut, have wrong bytes, or are missing."""
    for source in (
        directory / "recorded" / "demo",
        directory / "made" / "noisy-1",
    ):
        for damage in ("cut", "wrong", "missing"):
            copy = directory / "damaged" / f"{source.name}-{damage}"
            shutil.copytree(source, copy)
            files = sorted(copy.rglob("*.msgpack"), key=lambda path: path.name)
            for path in files[::2]:
                content = bytearray(path.read_bytes())
                middle = len(content) * 2 // 3
                if damage == "cut":
                    del content[middle:]
                content[middle : middle + 8] = b"\0" * min(8, len(content) - middle)
                path.write_bytes(content) if damage != "missing" else path.unlink()


def runs_in(directory: Path) -> dict[str, Path]:
    """Find all runs by name: the directories that hold trace files."""
    found = {path.parent for path in directory.rglob("*.msgpack")}
    return {str(path.relative_to(directory)): path for path in sorted(found)}


# --- answers -------------------------------------------------------------------------------------


def answers_of(source: Path) -> dict[str, Any]:
    """Ask everything of a run; what cannot be answered has its error."""
    from dasfprof import TraceAnalyser

    try:
        analyser = TraceAnalyser(source, progress=False)
        few = len(analyser.trace.tasks) <= FEW_TASKS
    except Exception as error:
        return {"open": _failure(error)}
    asked = {
        "trace": lambda: [repr(analyser.trace), [note.text for note in analyser.trace.notes]],
        **questions_to(analyser),
        **others_to(analyser),
        **exports_of(analyser, few=few),
    }
    return {name: _asked(ask) for name, ask in asked.items()}


def questions_to(analyser: Any) -> dict[str, Callable[[], Any]]:
    from dasfprof.analysis.tables import questions

    asked: dict[str, Callable[[], Any]] = {}
    for question in questions.all():
        for arguments in (
            {},
            *({"by": by} for by in question.further_groupings),
            *ARGUMENTS.get(question.name, ()),
        ):
            text = ", ".join(f"{name}={value}" for name, value in arguments.items())
            asked[f"{question.name}({text})"] = lambda q=question, a=arguments: q.of(analyser, **a)
    return asked


def others_to(analyser: Any) -> dict[str, Callable[[], Any]]:
    def summary() -> Any:
        from dasfprof.report.run_summary import in_words, start_in_words, summarise

        facts = summarise(analyser.trace)
        return [facts, in_words(facts), start_in_words(facts)]

    def causes() -> Any:
        from dasfprof.analysis.under_way.causes import find_causes
        from dasfprof.analysis.under_way.from_trace import state_from_trace
        from dasfprof.analysis.under_way.table import causes_table

        state = state_from_trace(analyser.trace)
        return None if state is None else causes_table(find_causes(state))

    def graph() -> Any:
        made = analyser.create_annotated_task_graph()
        return [sorted(map(str, made.nodes(data=True))), sorted(map(str, made.edges))]

    return {"summary": summary, "causes": causes, "graph": graph}


def exports_of(analyser: Any, *, few: bool) -> dict[str, Callable[[], Any]]:
    """What is written of a run: page and formats."""

    def written(read: Callable[[Path], Any], name: str, to: str | None = None) -> Any:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, name)
            if to is None:
                analyser.report(path)
            else:
                analyser.export(path, to=to)
            return read(path)

    asked = {
        "page": lambda: written(page_of, "run.html"),
        "speedscope": lambda: written(_json_of, "run.json", "speedscope"),
        "collapsed": lambda: written(_lines_of, "run.txt", "collapsed"),
        "parquet": lambda: written(_parquet_of, "run", "parquet"),
    }
    if few:
        asked["chrome"] = lambda: written(_json_of, "run.json", "chrome")
        asked["perfetto"] = lambda: written(_packets_of, "run.pftrace", "perfetto")
        asked["csv"] = lambda: written(
            lambda path: {file.name: _lines_of(file) for file in sorted(path.iterdir())},
            "run",
            "csv",
        )
    return asked


def answers_of_several(runs: Mapping[str, Path]) -> dict[str, Any]:
    """Compare runs, and look at their history."""
    from dasfprof import compare, history
    from dasfprof.report.comparison_data import comparison_data

    noisy = [path for name, path in runs.items() if name.startswith("made/noisy-")]
    slow = [path for path in noisy if "slow" in path.name]
    sides = {
        "noisy": ([path for path in noisy if path not in slow], slow),
        "sampled": ([runs["made/sampled"]], [runs["made/sampled-too"]]),
        "random": ([runs["made/random-1"]], [runs["made/random-2"]]),
    }
    found: dict[str, Any] = {}
    for name, (before, after) in sides.items():
        found[f"compare {name}"] = _asked(lambda b=before, a=after: comparison_data(compare(b, a)))
        found[f"page {name}"] = _asked(lambda b=before, a=after: _comparison_page(compare(b, a)))
    with tempfile.TemporaryDirectory() as directory:
        for path in noisy:
            shutil.copytree(path, Path(directory, path.name))
        found["history"] = _asked(lambda: history(directory).drop(columns="Directory"))
    for seed in range(100):
        found[f"in memory {seed}"] = _asked(lambda seed=seed: _accounting_in_memory(seed))
    return found


def _accounting_in_memory(seed: int) -> Any:
    """Account for a run whose tables were made without files."""
    _find_tests()
    from random_runs import random_run
    from traces import made_trace

    from dasfprof import TraceAnalyser

    analyser = TraceAnalyser(made_trace(**random_run(seed)), progress=False)
    return [plain(analyser.time_accounting(by)) for by in ("cluster", "worker", "function")]


def _comparison_page(comparison: Any) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "page.html")
        comparison.report(path)
        return page_of(path)


def _asked(ask: Callable[[], Any]) -> Any:
    try:
        return plain(ask())
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> dict[str, str]:
    return {"error": f"{type(error).__name__}: {_TEMPORARY.sub('PATH', str(error))}"}


def page_of(path: Path) -> Any:
    """Read the facts and columns of a page, as its script does."""
    text = path.read_text()
    facts = json.loads(re.search(r'id="facts">(.*?)</script>', text, re.DOTALL)[1])
    columns = {}
    for name, about in facts.pop("columns").items():
        found = re.search(rf'id="column-{re.escape(name)}">(.*?)</script>', text, re.DOTALL)
        columns[name] = [about, _column(about, zlib.decompress(base64.b64decode(found[1])))]
    return {"facts": facts, "columns": columns}


def _column(about: dict[str, Any], content: bytes) -> Any:
    kind, count = about["type"], about["count"]
    if kind == "text":
        return json.loads(content)
    if kind == "f8":
        return np.frombuffer(content, "<f8").tolist()
    width = int(kind[1])
    planes = np.frombuffer(content, np.uint8).reshape(width, count)
    numbers = np.ascontiguousarray(planes.T).view(f"<u{width}").reshape(count)
    if about.get("delta"):
        numbers = np.cumsum(numbers.astype(np.uint32), dtype=np.uint32)
    return numbers.tolist()


def _json_of(path: Path) -> Any:
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def _lines_of(path: Path) -> list[str]:
    return path.read_text(errors="surrogateescape").splitlines()


def _parquet_of(path: Path) -> dict[str, Any]:
    import pyarrow.parquet

    read = {file.name: pyarrow.parquet.read_table(file) for file in sorted(path.glob("*.parquet"))}
    return {
        name: {
            column: {
                "type": str(table.schema.field(column).type),
                "values": table[column].to_pylist(),
            }
            for column in table.column_names
        }
        for name, table in read.items()
    }


def _packets_of(path: Path) -> list[str]:
    from google.protobuf import text_format
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(path.read_bytes())
    return [text_format.MessageToString(packet, as_one_line=True) for packet in trace.packet]


def plain(value: Any) -> Any:
    """Turn an answer into what JSON holds; NaN and NA are null."""
    if isinstance(value, pd.DataFrame):
        columns = {
            str(label): {"type": str(series.dtype), "values": plain(series.tolist())}
            for label, series in value.items()
        }
        return {"columns": columns, "index": plain(value.index.tolist()), **_attributes(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    return None if value is pd.NaT or value is pd.NA else str(value)


def _attributes(table: pd.DataFrame) -> dict[str, Any]:
    return {"attrs": plain(table.attrs)} if table.attrs else {}


# --- differences ---------------------------------------------------------------------------------


def differences(kept: Any, now: Any, place: str = "") -> Iterator[str]:
    """Find where two answers differ."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for name in [*kept, *(name for name in now if name not in kept)]:
            if name not in now or name not in kept:
                yield f"{place}/{name}: {'gone' if name in kept else 'new'}"
            else:
                yield from differences(kept[name], now[name], f"{place}/{name}")
    elif isinstance(kept, list) and isinstance(now, list):
        if len(kept) != len(now):
            yield f"{place}: {len(kept)} items, now {len(now)}"
        for number, (one, other) in enumerate(zip(kept, now, strict=False)):
            if one is not other and one != other:
                yield from differences(one, other, f"{place}[{number}]")
    elif not alike(kept, now):
        yield f"{place}: {_short(kept)}, now {_short(now)}"


def alike(kept: Any, now: Any) -> bool:
    """Return whether two values are equal, floats to 1e-9 or their last digits.

    Large whole numbers are nanoseconds of an export, texts may be packets with such.
    """
    if kept == now:
        return True
    if isinstance(kept, bool) or isinstance(now, bool):
        return False
    if isinstance(kept, int | float) and isinstance(now, int | float):
        return abs(kept - now) <= max(
            1e-9 * max(1.0, min(abs(kept), 1e3)), 4 * math.ulp(float(kept))
        )
    if isinstance(kept, str) and isinstance(now, str) and "timestamp:" in kept:
        ours, theirs = (re.split(r"(\d+)", text) for text in (kept, now))
        return len(ours) == len(theirs) and all(
            one == other or (one.isdigit() and other.isdigit() and abs(int(one) - int(other)) <= 1)
            for one, other in zip(ours, theirs, strict=True)
        )
    return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


# --- commands ------------------------------------------------------------------------------------


def answers(directory: Path, processes: int, only: str) -> Iterator[tuple[str, Any]]:
    """Give the answers of all runs, each as it is there."""
    runs = runs_in(directory / "runs")
    chosen = {name: path for name, path in runs.items() if only in name}
    with ProcessPoolExecutor(processes) as pool:
        together = pool.submit(answers_of_several, runs) if not only else None
        yield from zip(chosen, pool.map(answers_of, chosen.values()), strict=True)
        if together is not None:
            yield "several", together.result()


def keep(directory: Path, processes: int) -> None:
    (directory / "answers").mkdir(parents=True)
    if not (directory / "runs").exists():
        (directory / "runs").mkdir()
        write_runs(directory / "runs")
    for name, found in answers(directory, processes, ""):
        path = directory / "answers" / f"{name.replace('/', '~')}.json.gz"
        path.write_bytes(gzip.compress(json.dumps(found).encode(), 1))
    print(f"{len(list((directory / 'answers').iterdir()))} runs are kept in {directory}")


def compare(directory: Path, processes: int, only: str, most: int) -> int:
    different = 0
    for name, found in answers(directory, processes, only):
        path = directory / "answers" / f"{name.replace('/', '~')}.json.gz"
        kept = json.loads(gzip.decompress(path.read_bytes()))
        for answer in [*kept, *(answer for answer in found if answer not in kept)]:
            texts = list(
                differences(
                    {answer: kept[answer]} if answer in kept else {},
                    {answer: found[answer]} if answer in found else {},
                )
            )
            different += len(texts)
            for text in texts[:most]:
                print(f"{name}: {text}", flush=True)
            if len(texts) > most:
                print(f"{name}: {answer}: {len(texts) - most} more")
    print(f"{different} differences")
    return int(different > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["keep", "compare"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="of these runs: a part of their names")
    parser.add_argument("--most", type=int, default=5, help="differences of an answer to print")
    options = parser.parse_args()
    os.environ["COLUMNS"] = "100"
    if options.what == "keep":
        keep(options.directory, options.processes)
        return 0
    return compare(options.directory, options.processes, options.only, options.most)


if __name__ == "__main__":
    sys.exit(main())
