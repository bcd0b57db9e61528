"""Written runs for pages of comparisons, and reading of these pages."""

from pathlib import Path
from typing import Any

from opened_pages import RULER, OpenedPage
from traces import Plan, Plugin, T, Task, row

from dasfprof.schema.profiles import TASK_SAMPLE
from dasfprof.schema.steps import STEP, STEP_END, STEP_LAYER
from dasfprof.schema.tasks import COMPUTE
from dasfprof.schema.under_way import STACK


def write_steps(directory: Path, stretch: float = 1.0, number: int = 1) -> Path:
    """Write a run of two steps with times multiplied by a factor."""
    loads = [(f"load-{n}", n, 0.5 + n // 2, 1.5 + n // 2) for n in range(4)]
    sums = [(f"sum-{n}", n, 3.0 + n, 3.75 + n) for n in range(2)]
    tasks = [
        Task(key, n % 2, begin * stretch, end * stretch) for key, n, begin, end in [*loads, *sums]
    ]
    run = f"steps-{1_790_000_000 + number}"
    facts = {"run": run, "run_uuid": run, "run_created": 1_790_000_000.0 + number}
    Plan(tasks, 2, 1, **facts).write_files(directory)
    steps = [(T - 2.0, 7, -1, "read"), (T - 1.0, 8, -1, "reduce")]
    layers = [(T - 1.9, 7, key, []) for key, *_ in loads]
    layers += [(T - 0.9, 8, key, []) for key, *_ in sums]
    Plugin(directory, "StepRecorder", run=run, run_uuid=run).write(
        (STEP, steps), (STEP_END, [(T - 1.5, 7), (T - 0.5, 8)]), (STEP_LAYER, layers)
    )
    return directory


def write_sampled(directory: Path, seconds: dict[str, float]) -> Path:
    """Write a run of one task, with samples in `step`, which calls the functions in `seconds`."""
    file = "/home/me/kmeans.py"
    stacks: list[Any] = [(T, 0, [["step", file, 40]], -1)]
    stacks += [(T, n, [[name, file, 50 + n]], 0) for n, name in enumerate(seconds, 1)]
    facts = {"activity": "running", "cpu": 0.1, "run_queue": 0.0, "thread": "7"}
    samples = [
        row(TASK_SAMPLE, timestamp=T + 0.1 * n, interval=spent, stack=n, **facts)
        for n, spent in enumerate(seconds.values(), 1)
    ]
    run = row(
        COMPUTE, timestamp=T, duration=sum(seconds.values()), key="f-1", state="memory", thread="7"
    )
    Plugin(directory, run=directory.name, run_uuid=directory.name).write(
        (STACK, stacks), (COMPUTE, [run]), (TASK_SAMPLE, samples)
    )
    return directory


def pixels(page: OpenedPage, side: str, canvas: str = "picture") -> bytes:
    """Return the pixels of a timeline below its ruler."""
    return page.pixels(f"[data-side={side}] canvas.{canvas}", 0, RULER).tobytes()
