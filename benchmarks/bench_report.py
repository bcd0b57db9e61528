"""Size of the HTML report, and time to write it, to open it, to move and search in it.

The trace has task runs of random durations on 32 threads, with two dependencies and all their
times. A headless Chromium opens the report that `write_report` makes from it.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from measure import Result, percentile, spread
from synthetic import FUNCTIONS, TOKENS, row

from dasfprof import FileDatabase, TraceAnalyser, write_report
from dasfprof.database.writer import Source
from dasfprof.schema.profiles import TASK_SAMPLE
from dasfprof.schema.tasks import COMPUTE, TASK_RUN
from dasfprof.schema.under_way import STACK

WORKERS, THREADS = 16, 2
FRAMES = 90
BEGIN = 1_790_000_000.0
#: Mean seconds of a task, and of each stage before and after it.
MEAN_TASK, MEAN_STAGE = 0.02, 0.002
SEARCHES = ("structured", "digits", "key")
#: Distinct stacks per worker.
STACKS = 5000
#: Numbers of tasks, and whether their keys end in hashes.
CASES = [(10_000, False), (100_000, False), (1_000_000, False), (1_000_000, True)]

MOVE = """(frames) => new Promise((resolve) => {
  const surface = document.querySelector("#timeline .overlay");
  const box = surface.getBoundingClientRect();
  const times = [];
  const step = (time) => {
    times.push(time);
    if (times.length > frames) return resolve(times.slice(1).map((at, i) => at - times[i]));
    const at = times.length;
    const pan = at % 3 === 0;
    surface.dispatchEvent(new WheelEvent("wheel", {
      clientX: box.x + box.width * 0.6, clientY: box.y + 60, bubbles: true, cancelable: true,
      deltaY: pan ? 0 : at % 60 < 30 ? -60 : 60, deltaX: pan ? 40 : 0,
    }));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""

SEARCH = """(query) => new Promise((resolve) => {
  const input = document.querySelector("#search");
  const found = document.querySelector("#found");
  const begin = performance.now();
  new MutationObserver((_, observer) => {
    observer.disconnect();
    resolve(performance.now() - begin);
  }).observe(found, { childList: true, characterData: true, subtree: true });
  input.value = query;
  input.dispatchEvent(new Event("input"));
})"""


AREA = """() => new Promise((resolve) => {
  const surface = document.querySelector("#timeline .overlay");
  const press = (key) =>
    surface.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  surface.focus();
  press("Home");
  requestAnimationFrame(() => {
    const begin = performance.now();
    press("m");
    const shown = !document.querySelector("#area").hidden;
    const title = document.querySelector("#area h3").textContent;
    requestAnimationFrame(() => resolve({ spent: performance.now() - begin, shown, title }));
  });
})"""


def write_trace(
    directory: Path,
    count: int,
    *,
    hashed: bool = False,
    samples: int = 0,
    seed: int = 1,
    cluster: tuple[int, int] = (WORKERS, THREADS),
) -> None:
    """Write the files of workers and scheduler for a run of `count` tasks.

    Parameters
    ----------
    directory
        Directory of the files.
    count
        Number of tasks.
    hashed
        Whether all keys end in hashes, like those of `dask.delayed`, instead of chunk indices.
    samples
        Number of stack samples per task.
    seed
        Seed of the random durations.
    cluster
        Number of workers, and threads per worker.
    """
    generator = np.random.default_rng(seed)
    workers, threads = cluster
    lanes = workers * threads
    share = count // lanes
    scheduled = []
    for worker in range(workers):
        label, address = f"worker-node-{worker}", f"tcp://node:{worker}"
        about = {"id": label, "name": worker, "address": address, "label": label}
        header = {"plugin": "TracePlugin", "run": "synthetic", "boot_id": "one", "host": "node"}
        database = FileDatabase(
            directory / f"synthetic-TracePlugin-node-{worker}.msgpack",
            flush_interval=3600,
            max_pending=1 << 30,
            header={**header, "worker": {**about, "nthreads": threads}},
        )
        source = Source.from_schema(COMPUTE, {"process_id": "node", "thread_id": label})
        database.writer.add_source(source)
        sampled = Source.from_schema(TASK_SAMPLE, {"process_id": "node", "thread_id": label})
        if samples:
            stacks = Source.from_schema(STACK, {"process_id": "node", "thread_id": label})
            database.writer.add_source(stacks)
            stacks.rows.extend(stack_rows())
            database.writer.add_source(sampled)
        for thread in range(threads):
            lane = worker * threads + thread
            durations = generator.exponential(MEAN_TASK, share)
            stages = generator.exponential(MEAN_STAGE, (7, share))
            starts = BEGIN + np.cumsum(durations + stages[0]) - durations
            times = zip(*(column.tolist() for column in (starts, durations, *stages)), strict=True)
            for at, (start, duration, *stage) in enumerate(times):
                number = at * lanes + lane
                lane_about = (thread, address, hashed)
                compute, scheduler = task_rows(number, start, duration, stage, lane_about)
                source.rows.append(compute)
                scheduled.append(scheduler)
                for look in range(samples):
                    when = start + (look + 0.5) / samples * duration
                    sampled.rows.append(sample_row(when, thread, (number * 7 + look) % STACKS))
        database.commit()
        database.close()
    write_scheduler(directory, scheduled)


def stack_rows() -> list[tuple[Any, ...]]:
    """Return the rows of distinct stacks of up to 25 nested calls."""
    return [
        row(
            STACK,
            timestamp=BEGIN,
            number=number,
            frames=[[f"call{number % 97}", f"/home/me/module{number % 13}.py", number % 300 + 1]],
            parent=number - 1 if number % 25 else -1,
        )
        for number in range(STACKS)
    ]


def sample_row(when: float, thread: int, stack: int) -> tuple[Any, ...]:
    """Return the row of a stack sample."""
    return row(
        TASK_SAMPLE,
        timestamp=when,
        thread=str(140_000_000_000 + thread),
        stack=stack,
        activity=("running", "running", "lock", "waiting")[stack % 4],
        interval=0.004,
        cpu=0.002,
        run_queue=0.0005,
    )


def key_of(token: int, chunk: int, *, hashed: bool) -> Any:
    """Return the key of a chunk in the layer `token`."""
    if hashed:
        content = f"{token}/{chunk}".encode()
        return f"{FUNCTIONS[token % 20]}-{hashlib.md5(content, usedforsecurity=False).hexdigest()}"
    return (f"{FUNCTIONS[token % 20]}-{TOKENS[token]}", chunk, 0)


def task_rows(
    number: int, start: float, duration: float, stage: list[float], about: tuple[int, str, bool]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the rows of a task run that the worker and the scheduler record."""
    thread, address, hashed = about
    token, chunk = number % 200, number // 200
    key = key_of(token, chunk, hashed=hashed)
    dependencies = [key_of(token, chunk - back, hashed=hashed) for back in (1, 2)]
    executing = start - stage[1]
    ready = executing - stage[2]
    received = ready - stage[3]
    sent = received - stage[4]
    done = start + duration + stage[5]
    known = done + stage[6]
    sizes = 80_000 + token * 1000
    compute = row(
        COMPUTE,
        timestamp=start,
        duration=duration,
        key=key,
        name=FUNCTIONS[token % 20],
        run_id=number,
        state="memory",
        size=sizes,
        type="numpy.ndarray",
        dtype="float64",
        shape=(100, 100),
        dependencies=dependencies if chunk > 1 else [],
        input_size=2 * sizes,
        thread=140_000_000_000 + thread,
        cpu=duration * 0.9,
        received=received,
        ready=ready,
        executing=executing,
        done=done,
        deserialize=0.0,
        disk_read=0.0,
    )
    scheduler = row(
        TASK_RUN,
        timestamp=sent,
        duration=known - sent,
        key=key,
        run_id=number,
        worker=address,
        state="memory",
        waiting=sent - stage[0],
        start=start,
        stop=start + duration,
        size=sizes,
        cause="graph-1",
        end_cause="done-1",
        priority_generation=1,
        priority_order=number,
    )
    return compute, scheduler


def write_scheduler(directory: Path, rows: list[tuple[Any, ...]]) -> None:
    database = FileDatabase(
        directory / "synthetic-SchedulerPlugin-node-scheduler.msgpack",
        flush_interval=3600,
        max_pending=1 << 30,
        header={"plugin": "SchedulerPlugin", "run": "synthetic", "boot_id": "one", "host": "node"},
    )
    source = Source.from_schema(TASK_RUN, {"process_id": "node", "thread_id": "scheduler"})
    database.writer.add_source(source)
    source.rows.extend(rows)
    database.commit()
    database.close()


def renderer_megabytes() -> float:
    """Return the resident memory of the page's process in MB."""
    sizes = [
        child.memory_info().rss
        for child in psutil.Process().children(recursive=True)
        if "--type=renderer" in child.cmdline()
    ]
    return max(sizes, default=0) / 1e6


def queries(*, hashed: bool) -> dict[str, str]:
    """Return the searched texts: a function, digits, and a key."""
    key = key_of(63, 12, hashed=hashed)
    return {
        "structured": "function7",
        "digits": "123",
        "key": key if hashed else f"{key[0]}', {key[1]}",
    }


def browse(browser: Any, path: Path, *, hashed: bool) -> dict[str, Any]:
    """Open the report, move and search in it, and return the measured times."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(path.as_uri(), wait_until="commit")
    while page.evaluate("document.documentElement?.dataset.ready") != "whole":
        time.sleep(0.02)
    marks = "performance.getEntriesByType('mark').map((mark) => [mark.name, mark.startTime])"
    measured: dict[str, Any] = dict(page.evaluate(marks))
    measured["frames"] = page.evaluate(MOVE, FRAMES)
    measured["search"] = {
        name: page.evaluate(SEARCH, query) for name, query in queries(hashed=hashed).items()
    }
    page.evaluate(SEARCH, "")
    area = page.evaluate(AREA)
    if not area["shown"] or not area["title"].endswith(" task runs"):
        raise RuntimeError(f"no area was selected: {area}")
    measured["area"] = area["spent"]
    measured["memory"] = renderer_megabytes()
    page.close()
    return measured


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, action="append")
    parser.add_argument("--samples", type=int, default=0, help="stack samples per task")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--threads", type=int, default=THREADS, help="threads per worker")
    options = parser.parse_args(arguments)
    cluster = (options.workers, options.threads)
    result = Result(
        "HTML report",
        [
            *("tasks", "file, MB", "write, s", "CPU, s", "first picture, ms"),
            *("all data, ms", "frame p50/p95, ms", *(f"search {name}, ms" for name in SEARCHES)),
            *("select all, ms", "page memory, MB"),
        ],
    )
    browser_path = shutil.which("chromium")
    if browser_path is None:
        raise SystemExit("chromium not found: install it with apt-get install chromium")
    from playwright.sync_api import sync_playwright

    cases = [(count, False) for count in options.tasks] if options.tasks else CASES
    for count, hashed in cases:
        with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
            write_trace(
                Path(directory), count, hashed=hashed, samples=options.samples, cluster=cluster
            )
            path = Path(directory, "report.html")
            written, cpu_seconds, seen = [], [], []
            for _ in range(options.rounds):
                # An analyser caches its results, so each round needs a new one.
                analyser = TraceAnalyser(directory, progress=False)
                begin, cpu = time.perf_counter(), time.process_time()
                write_report(analyser, path)
                written.append(time.perf_counter() - begin)
                cpu_seconds.append(time.process_time() - cpu)
                del analyser
            for _ in range(options.rounds):
                browser = playwright.chromium.launch(
                    executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
                )
                seen.append(browse(browser, path, hashed=hashed))
                browser.close()
            size = path.stat().st_size
        frames = [frame for page in seen for frame in page["frames"]]

        def median(name: str, seen: list[dict[str, Any]] = seen) -> str:
            return f"{spread([page[name] for page in seen])[0]:.0f}"

        searches = [spread([page["search"][name] for page in seen])[0] for name in SEARCHES]
        result.rows.append(
            [
                f"{count:,}" + (", hashed" if hashed else ""),
                f"{size / 1e6:.2f}",
                f"{spread(written)[0]:.2f}",
                f"{spread(cpu_seconds)[0]:.2f}",
                *map(median, ("picture", "whole")),
                f"{percentile(frames, 0.5):.0f} / {percentile(frames, 0.95):.0f}",
                *(f"{seconds:.0f}" for seconds in searches),
                median("area"),
                median("memory"),
            ]
        )
        result.figures[f"{count}{' hashed' if hashed else ''}"] = {
            "size": size,
            "written": written,
            "cpu": cpu_seconds,
            "seen": seen,
        }
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
