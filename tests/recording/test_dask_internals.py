"""Dask's private names: all are listed, and a missing name only disables what needs it, which is
reported."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.dataframe  # noqa: F401  (its names are looked up only where it is in use)
import distributed.spill  # noqa: F401
import pytest

from dasfprof import TraceAnalyser
from dasfprof.recording.dask_internals.names import (
    ARRAYS,
    DASK_ARRAYS,
    ESTIMATES,
    HANDLER_FACTS,
    LOCAL,
    METERING,
    NAMES,
)
from dasfprof.recording.dask_internals.patch import Hook, Patch, SharedPatches
from dasfprof.recording.dask_internals.worker_calls import listen
from dasfprof.recording.guard import HookGuard

#: Time limit: dozens of runs are recorded before the first test that reads them.
pytestmark = pytest.mark.timeout(1800)

PROGRAM = Path(__file__).with_name("renamed_dask.py")
#: Names of attributes of many objects. They are renamed in our list instead of in Dask. The last
#: one does not belong to Dask.
COMMON_WORDS = ("key", "fast", "_name", "operands", "operand", "_parameters", "rewrite", "optimize")
COMMON_WORDS += ("process", "send", "_exception", "handlers", "sync", "loads", "get_data")
COMMON_WORDS += ("_dynamic_function_reduce",)
#: Names that represent all names with the same use.
_WORKER, _EXPRESSION = "distributed.worker_state_machine:", "dask.dataframe.dask_expr._expr:Expr."
ALIKE = {
    *(
        "distributed.worker:Worker.active_threads_lock",
        "distributed.scheduler:SchedulerState.unrunnable",
    ),
    *(f"{_WORKER}{name}" for name in ("ExecuteFailureEvent", "GatherDepSuccessEvent")),
    f"{_WORKER}TaskState.start_time",
    *(f"{_EXPRESSION}{name}" for name in ("operands", "_parameters", "rewrite", "lower_once")),
    f"{_EXPRESSION}optimize",
}


def test_this_dask_has_all_names() -> None:
    """If a new version of Dask has renamed something, this test lists it with the consequences."""
    gone = {path: one.loss for one in NAMES for path in one.gone()}
    assert not gone
    paths = [path for one in NAMES for path in one.paths]
    assert len(paths) == len(set(paths)) > 50
    assert all(one.loss and one.paths for one in NAMES)
    assert [one for one in NAMES if not one.plugins] == [HANDLER_FACTS, ESTIMATES, LOCAL]


#: Private names in modules that this version of Dask has and the run uses.
REMOVED = {
    path: one
    for one in NAMES
    if one not in (ARRAYS, DASK_ARRAYS, HANDLER_FACTS, ESTIMATES, LOCAL)
    for path in one.paths
    if path not in ALIKE and importlib.util.find_spec(path.partition(":")[0])
}
#: Without ``--long``, only one of the names that are lost together is tested.
FIRST = [*{id(one): path for path, one in reversed(REMOVED.items())}.values()]


@pytest.fixture(scope="module")
def recorded(request: Any, tmp_path_factory: Any) -> dict[str, dict[str, Any]]:
    """Return what was recorded by versions of Dask that lack one of the names each."""
    looked_at = REMOVED if request.config.getoption("--long") else FIRST
    paths = [path for path in REMOVED if path in looked_at]
    given = [("-" if re.split("[:.]", path)[-1] in COMMON_WORDS else "") + path for path in paths]
    place = tmp_path_factory.mktemp("renamed")
    command = [sys.executable, str(PROGRAM), str(place), *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1700, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths), done.stderr[-3000:]
    found = {one["name"]: one for one in map(json.loads, lines)}
    for number, one in enumerate(found.values()):
        if "failed" not in one:
            trace = TraceAnalyser(place / str(number), progress=False).trace
            one["notes"] = [note.text for note in trace.notes]
            one["tasks"] = len(trace.tasks)
    return found


LATER = [pytest.param(path, marks=pytest.mark.slow) for path in REMOVED if path not in FIRST]


@pytest.mark.whole_program
@pytest.mark.parametrize("path", [*FIRST, *LATER])
def test_a_run_without_a_name(path: str, recorded: dict[str, dict[str, Any]]) -> None:
    told, names = recorded[path], REMOVED[path]
    assert "failed" not in told, told["failed"]
    assert told["results"] == [800.0, 210, 1000, "ZeroDivisionError"]
    assert (told["errors"], told["left"]) == (0, [])
    counts = told["counts"]
    assert counts["Task Run"] > 10
    assert counts.get("Compute", 0) == (0 if names is METERING else counts["Task Run"])
    assert told["tasks"] == counts["Task Run"]
    assert counts["Step"] == 2
    # The reason is in the headers of the plugins' files that are affected, and in the data notes.
    for plugin, missing in told["missing"].items():
        expected = {path} if plugin in names.plugins else set()
        lost = {each.removesuffix("_of_tomorrow") for each in missing}
        assert expected <= lost
        # A name that an expression class inherits is missing in both classes.
        assert set(map(_last, lost)) <= set(map(_last, expected))
    if set(names.plugins) & told["missing"].keys():
        begin = "The recorded version of Dask has no"
        notes = [note for note in told["notes"] if note.startswith(begin)]
        assert any(path in note and names.loss in note for note in notes)
    assert ("Transfer" in counts) == ("no transfers" not in names.loss)


def _last(path: str) -> str:
    return re.split("[:.]", path)[-1]


def test_importing_needs_none_of_them() -> None:
    """Plugins can be imported even if all classes of Dask's state machine are missing."""
    code = """
import distributed.worker_state_machine as machine, dask.highlevelgraph as graphs
for name in [name for name in vars(machine) if name.endswith("Event")]:
    delattr(machine, name)
del graphs.HighLevelGraph
from dasfprof.recording import *
import dasfprof.recording.plugins.nvtx
from dasfprof.recording.dask_internals.names import missing
print(len(missing("TracePlugin")), len(missing("StepRecorder")))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["6", "1"]


class Target:
    """Patched class: a method, a class method, and a method with any arguments."""

    def method(self, event: Any, ledger: Any, span_id: Any = None) -> Any:
        return event, ledger, span_id

    @classmethod
    def of_class(cls, *args: Any, **kwargs: Any) -> Any:
        return cls, args, kwargs


@pytest.mark.parametrize(("args", "kwargs"), [((1, 2, 3), {}), ((1,), {"ledger": 2})])
def test_metering_is_blind_to_how_it_is_called(args: Any, kwargs: Any) -> None:
    target, seen = Target(), []
    target._finalize_metrics = target.method  # type: ignore[attr-defined]
    patch = listen(target, lambda event, ledger: seen.append((event, ledger)), HookGuard())
    assert target._finalize_metrics(*args, **kwargs) == target.method(*args, **kwargs)  # type: ignore[attr-defined]
    assert seen == [(1, 2)]
    with pytest.raises(TypeError, match="surprise"):  # an error of Dask, not of a hook
        target._finalize_metrics(*args, **kwargs, surprise=1)  # type: ignore[attr-defined]
    patch.remove()


def passing_on(original: Any, patch: Patch) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls.append(patch.active)
        return original(*args, **kwargs)

    return wrapper


calls: list[bool] = []


def test_patches_leave_in_any_order() -> None:
    target = Target()
    first, second, third = (Patch(target, "method", passing_on) for _ in range(3))
    calls.clear()
    assert target.method(1, ledger=2) == (1, 2, None)
    assert calls == [True] * 3
    second.remove()
    first.remove()
    first.remove()
    calls.clear()
    assert target.method(1, 2) == (1, 2, None)
    assert calls == [True]
    third.remove()
    assert vars(target) == {}


def test_patches_that_follow_each_other_form_no_chain() -> None:
    """Each patch is removed after the next one has been placed, as in consecutive runs."""
    for owner, name in ((Target(), "method"), (Target, "of_class")):
        before = vars(owner).get(name)
        patch = Patch(owner, name, passing_on)
        for _ in range(20):
            earlier, patch = patch, Patch(owner, name, passing_on)
            earlier.remove()
        calls.clear()
        expected = (Target, (1,), {"ledger": 2}) if owner is Target else (1, 2, None)
        assert getattr(owner, name)(1, ledger=2) == expected
        assert calls == [True]
        patch.remove()
        assert vars(owner).get(name) is before


def test_shared_patches_stay_until_the_last_user_leaves() -> None:
    before, placed, removed = vars(Target)["method"], [], []

    def hooks() -> list[Hook]:
        placed.append(1)
        return [(Target, "method", passing_on), (Target, "absent", passing_on)]

    shared = SharedPatches(hooks, lambda: removed.append(1))
    shared.enter()
    shared.enter()
    ours = vars(Target)["method"]
    shared.place_more()
    shared.leave()
    assert vars(Target)["method"] is ours is not before
    assert not removed
    shared.leave()
    shared.place_more()
    assert vars(Target)["method"] is before
    assert (len(placed), len(removed)) == (2, 1)
