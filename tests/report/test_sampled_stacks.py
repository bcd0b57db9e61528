"""Stack samples in the formats of flame graph viewers: complete, over time, and inert."""

import json
from pathlib import Path
from typing import Any

import pytest
from traces import Plugin, T, row
from traces.in_memory import made_trace

from dasfprof import TraceAnalyser
from dasfprof.schema.profiles import CLIENT_SAMPLE, LOOP_SAMPLE, TASK_SAMPLE
from dasfprof.schema.tasks import COMPUTE
from dasfprof.schema.under_way import STACK

HOSTILE = "<script>alert(1)</script>; evil\n\x1b[31m 7"


@pytest.fixture
def analyser(tmp_path: Path) -> TraceAnalyser:
    stacks = [
        (T, 0, [["step", "/home/me/kmeans.py", 40]], -1),
        (T, 1, [["norm", "/site-packages/numpy/x.py", 7]], 0),
        (T, 2, [[HOSTILE, "\udcff.py", 1]], 0),
    ]
    facts: dict[str, Any] = {"activity": "running", "cpu": 0.1, "run_queue": 0.0}

    def sample(stack: int, seconds: float) -> tuple[Any, ...]:
        times = {"timestamp": T + 0.5, "interval": seconds, "stack": stack}
        return row(TASK_SAMPLE, thread="7", **times, **facts)

    run = row(COMPUTE, timestamp=T, duration=1.0, key="step-1", state="memory", thread="7")
    loop = {"timestamp": T + 0.4, "interval": 0.05, "stack": 0, "since": T, "until": None}
    ended = {**loop, "until": T + 0.5, "stack": -1, "interval": 0.0}
    Plugin(tmp_path / "traces").write(
        (STACK, stacks),
        (COMPUTE, [run]),
        (TASK_SAMPLE, [sample(0, 0.25), sample(1, 0.5), sample(2, 0.125), sample(-1, 0.0625)]),
        (LOOP_SAMPLE, [row(LOOP_SAMPLE, **{**facts, **one}) for one in (loop, ended)]),
    )
    client = {"timestamp": T + 0.5, "interval": 0.75, "stack": 0, "phase": "waiting"}
    Plugin(tmp_path / "traces", "StepRecorder").write(
        (STACK, stacks[:1]), (CLIENT_SAMPLE, [row(CLIENT_SAMPLE, **client, **facts)])
    )
    return TraceAnalyser(tmp_path / "traces")


def test_speedscope(analyser: TraceAnalyser, tmp_path: Path) -> None:
    path = analyser.export(tmp_path / "stacks.json", to="speedscope", title="mine")
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert content["name"] == "mine"
    frames = content["shared"]["frames"]
    assert {"name": "step", "file": "/home/me/kmeans.py", "line": 40} in frames
    profiles = {profile["name"]: profile for profile in content["profiles"]}
    names = ["tasks", "tasks: step", "client: waiting", "event loops: worker-node1-0"]
    assert list(profiles) == names
    tasks = profiles["tasks: step"]
    assert tasks["endValue"] == pytest.approx(0.9375) == sum(tasks["weights"])
    stacks = [[frames[number]["name"] for number in sample] for sample in tasks["samples"]]
    weights = dict(zip(map(tuple, stacks), tasks["weights"], strict=True))
    of_step = {("step",): 0.25, ("step", "norm"): 0.5, ("step", HOSTILE): 0.125}
    assert weights == {**of_step, ("(unknown)",): 0.0625}
    assert "\udcff" not in json.dumps(frames, ensure_ascii=False)
    bare = TraceAnalyser(made_trace([], workers=[]))
    path = bare.export(tmp_path / "none", to="speedscope", title="none")
    assert json.loads(path.read_text())["shared"]["frames"] == []
