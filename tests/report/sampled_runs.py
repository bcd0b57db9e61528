"""Run with stack samples, written by hand."""

from pathlib import Path
from typing import Any

from traces import Plugin, T, row

from dasfprof.schema.profiles import CLIENT_SAMPLE, LOOP_SAMPLE, TASK_SAMPLE
from dasfprof.schema.tasks import COMPUTE, FUNCTION_CODE, LOG_RECORD, TASK_ARGUMENTS, TRACEBACK
from dasfprof.schema.under_way import STACK

WORK, SITE = "/home/me/kmeans.py", "/env/lib/python3.12/site-packages"
HOSTILE = "</script><img src=x onerror=alert(1)>"
SOURCE = f"def nearest(x):\n    y = norm(x)\n    # {HOSTILE}\n    return wait(y)\n"
CALLS = f'  File "{WORK}", line 7, in load\n    return "{HOSTILE}"\n'
STACKS = [
    (T, 0, [["nearest", WORK, 41]], -1),
    (T, 1, [["norm", f"{SITE}/numpy/linalg/_linalg.py", 2800]], 0),
    (T, 2, [["nearest", WORK, 43]], -1),
    (T, 3, [[HOSTILE, "/home/me/\x1bevil\udcff.py", 7]], -1),
    (T, 4, [["_run", "/lib/python3.12/asyncio/events.py", 80], ["plug", "/home/me/p.py", 3]], -1),
]


def write_sampled_run(directory: Path) -> Path:
    """Write four task runs of ``nearest``, 1 to 4 s on two threads, and one with a hostile name.

    Line 41 of ``nearest`` computes in ``norm``, and line 43 waits. One sample has an unknown stack.
    """
    facts: dict[str, Any] = {"activity": "running", "run_queue": 0.0}

    def sample(at: float, stack: int, seconds: float, **more: Any) -> tuple[Any, ...]:
        about = {**facts, "cpu": seconds, "interval": seconds, "stack": stack, **more}
        return row(TASK_SAMPLE, timestamp=T + at, thread="7", **about)

    def run(key: str, start: float, seconds: float, **more: Any) -> tuple[Any, ...]:
        about = {"state": "memory", "thread": "7", "run_id": int(start), **more}
        return row(COMPUTE, timestamp=T + start, duration=seconds, key=key, **about)

    waits = {"activity": "waiting", "cpu": 0.0}
    unknown = dict.fromkeys(("cpu", "run_queue", "activity"))
    samples = [
        *(sample(0.5, 1, 0.5), sample(2.5, 1, 1.0), sample(3.0, 0, 0.25)),
        *(sample(3.5, 2, 0.75, **waits), sample(5.0, 2, 1.0, **waits)),
        *(sample(20.5, 3, 0.5, **unknown), sample(20.75, -1, 0.25, **unknown)),
    ]
    # No sample covers time before the start of its task run.
    runs = [run("nearest-1", 0.0, 1.0), run("nearest-2", 1.5, 2.0, run_id=2)]
    runs += [run("nearest-3", 4.0, 3.0), run("nearest-4", 8.0, 4.0, thread="9")]
    error = {"exception": f"ValueError: {HOSTILE}", "raised_at": f"{WORK}:43 nearest"}
    runs += [run("fails-1", 13.0, 0.5, state="erred", **error)]
    # A task that is retried, a coroutine, and a name that exists in JavaScript objects.
    runs += [run("load-1", 15.0, 0.5, state="erred", **error), run("load-1", 16.0, 0.5)]
    runs += [run("coroutine-1", 17.0, 0.5, thread=None), run("constructor-1", 18.0, 0.5)]
    runs += [run(f"{HOSTILE}-1", 20.0, 1.0)]
    about = {"name": "nearest", "function": "kmeans.nearest", "file": WORK, "line": 40}
    code = row(FUNCTION_CODE, timestamp=T, source=SOURCE, **about)

    def log(at: float, key: str, number: int, level: str, message: str, **more: Any) -> Any:
        about = {"timestamp": T + at, "key": key, "run_id": number, "level": level}
        about |= {"message": message, "logger": "x", "line": f"{WORK}:41 nearest", **more}
        return row(LOG_RECORD, **about)

    logs = [
        log(2.5, "nearest-2", 2, "WARNING", "slow disk"),
        log(16.1, "load-1", 16, "ERROR", f"no chunk {HOSTILE}", exception="OSError", error=1),
        log(17.1, "coroutine-1", 17, "INFO", "m" * 1000),
        log(19.0, "gone-1", 99, "INFO", "of no run"),
    ]
    calls = row(TRACEBACK, timestamp=T + 15.5, key="load-1", run_id=15, text=CALLS)
    arguments = f"x: numpy.ndarray float64 (3, 4); {HOSTILE}: int"
    about = {"timestamp": T + 4.0, "key": "nearest-2", "run_id": 2}
    called = row(TASK_ARGUMENTS, arguments=arguments, **about)
    times = {"timestamp": T + 0.4, "interval": 0.125, "cpu": 0.125}
    loop = row(LOOP_SAMPLE, **{**facts, **times, "stack": 4, "since": T, "until": None})
    ended = {**facts, **times, "stack": -1, "interval": 0.0, "since": T, "until": T + 0.5}
    Plugin(directory).write(
        *((STACK, STACKS), (COMPUTE, runs), (TASK_SAMPLE, samples), (FUNCTION_CODE, [code])),
        *((LOG_RECORD, logs), (TRACEBACK, [calls]), (TASK_ARGUMENTS, [called])),
        (LOOP_SAMPLE, [loop, row(LOOP_SAMPLE, **ended)]),
    )
    client = {**facts, **times, "interval": 0.75, "stack": 0, "phase": "waiting"}
    Plugin(directory, "StepRecorder").write(
        (STACK, STACKS[:1]), (CLIENT_SAMPLE, [row(CLIENT_SAMPLE, **client)])
    )
    return directory
