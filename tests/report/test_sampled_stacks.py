"""Stack samples in the format of flame graph viewers: complete, over time, and inert."""

import json
from pathlib import Path

import pytest
from sampled_runs import HOSTILE, WORK, write_sampled_run
from traces.in_memory import made_trace

from dasfprof import TraceAnalyser


def test_speedscope(tmp_path: Path) -> None:
    analyser = TraceAnalyser(write_sampled_run(tmp_path / "traces"), progress=False)
    path = analyser.export(tmp_path / "stacks.json", to="speedscope", title="mine")
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert content["name"] == "mine"
    frames = content["shared"]["frames"]
    assert {"name": "nearest", "file": WORK, "line": 41} in frames
    profiles = {profile["name"]: profile for profile in content["profiles"]}
    names = ["tasks", "tasks: nearest", "tasks: /script><img", "client: waiting"]
    assert list(profiles) == [*names, "event loops: worker-node1-0"]
    tasks = profiles["tasks"]
    assert tasks["endValue"] == pytest.approx(4.25) == sum(tasks["weights"])
    lines = [(frame["name"], frame.get("line")) for frame in frames]
    stacks = (tuple(lines[number] for number in sample) for sample in tasks["samples"])
    first, last = ("nearest", 41), ("nearest", 43)
    assert dict(zip(stacks, tasks["weights"], strict=True)) == {
        **{(first, ("norm", 2800)): 1.5, (first,): 0.25, (last,): 1.75},
        **{((HOSTILE, 7),): 0.5, (("(unknown)", None),): 0.25},
    }
    assert "\udcff" not in json.dumps(frames, ensure_ascii=False)
    bare = TraceAnalyser(made_trace([], workers=[]))
    path = bare.export(tmp_path / "none", to="speedscope", title="none")
    assert json.loads(path.read_text())["shared"]["frames"] == []
