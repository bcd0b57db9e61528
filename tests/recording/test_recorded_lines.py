"""Task runs are attributed to the lines of the program that built them, on real workers."""

import functools
import gc
import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import lined_library
import lined_programs
import pandas as pd
import pytest
from clusters import client_of, wait_until
from distributed import Client, wait, worker_client
from lined_programs import PROGRAMS, marked_lines, take_notes

import dasfprof
from dasfprof import MultiEventDatabase, TraceAnalyser
from dasfprof.analysis.trace.lines import OF_OTHERS
from dasfprof.recording.steps.line import current_line

client = client_of(2, 1)
MARKED = marked_lines(lined_programs.__file__, lined_library.__file__)


def members(line: Any) -> set[str]:
    """Return the lines in the name of a line, which may be a group of lines."""
    found = set()
    for part in str(line).split(" + "):
        file, _, numbers = part.rpartition(":")
        found |= {f"{file}:{number}" for number in numbers.split(", ")}
    return found


def seconds_of(analyser: TraceAnalyser, notes: list[Any], marked: dict[str, str]) -> Any:
    """Return the thread time of marked tasks: in total, on the marked line, and on other lines."""
    trace = analyser.trace
    tasks = trace.tasks.assign(key=trace.keys.texts(trace.tasks["key_id"].to_numpy()))
    rows = {key: row for row, key in enumerate(tasks["key"])}
    lines = tasks["line"].astype(object)
    whole = right = wrong = 0.0
    for key, name, seconds in notes:
        line = lines[rows[str(key)]]
        whole += seconds
        if isinstance(line, str):
            is_right = marked[name] in members(line)
            right, wrong = right + seconds * is_right, wrong + seconds * (not is_right)
    return whole, right, wrong


@pytest.mark.parametrize(
    "program",
    [
        *PROGRAMS,
        lined_programs.xarrays,
        pytest.param(lined_programs.dask_ml, marks=pytest.mark.whole_program),
    ],
)
def test_thread_seconds_belong_to_lines(program: Any, client: Client, tmp_path: Path) -> None:
    needed = {lined_programs.xarrays: "xarray", lined_programs.dask_ml: "dask_ml"}
    if program in needed:
        pytest.importorskip(needed[program])
    client.run(take_notes)
    with dasfprof.profile(client, directory=tmp_path) as run:
        program(client)
    notes = [note for own in client.run(take_notes).values() for note in own]
    analyser = run.analyser(progress=False)
    whole, right, wrong = seconds_of(analyser, notes, MARKED)
    assert (whole > 0, wrong) == (True, 0)
    assert right >= 0.95 * whole
    for check in CHECKS.get(program.__name__, ()):
        check(analyser)


def assert_sums(analyser: TraceAnalyser) -> None:
    """Assert that the sums over lines and over layers equal the time accounting, by category."""
    ledger, plan, accounts = analyser.lines(), analyser.plan(), analyser.time_accounting()
    total = accounts["Thread Time (s)"].sum()
    assert ledger["Thread Time (s)"].sum() == pytest.approx(total, rel=1e-12)
    busy = accounts[accounts["Busy"]].set_index("Class")["Thread Time (s)"]
    for table in (ledger, plan):
        assert table["Tasks"].sum() == len(analyser.trace.tasks)
        for spent, seconds in busy.items():
            assert table[f"{spent} (s)"].sum() == pytest.approx(seconds, rel=1e-12)
    assert plan["Critical Path (s)"].sum() == pytest.approx(ledger["Critical Path (s)"].sum())
    lines = ledger[ledger["Tasks"] > 0].set_index("Line")["Thread Time (s)"].to_dict()
    assert plan.groupby("Line")["Thread Time (s)"].sum().to_dict() == pytest.approx(lines, rel=1e-9)


def assert_fused_group(analyser: TraceAnalyser) -> None:
    """Assert that a group of fused tasks has the lines whose work these tasks do."""
    first, second = (int(MARKED[name].rpartition(":")[2]) for name in ("first", "second"))
    group = f"lined_programs.py:{first}, {first + 1}, {second}, {second + 1}"
    row = analyser.lines().set_index("Line").loc[group]
    assert (row["Text"], row["In"], row["Tasks"]) == ("x.sum().compute()", "fused_arrays", 4)


def assert_shuffle(analyser: TraceAnalyser) -> None:
    """Assert that the tasks of shuffles belong to the line of the merge."""
    tasks = analyser.trace.tasks
    shuffled = tasks["function"].isin(["hash-join-transfer", "hash-join-p2p", "shuffle-barrier"])
    assert shuffled.any()
    for line in set(tasks["line"][shuffled].astype(object)):
        assert MARKED["merged"] in members(line)


def assert_client_seconds(analyser: TraceAnalyser) -> None:
    """Assert that the client's seconds belong to the lines of its calls."""
    calls, ledger = analyser.client_calls(), analyser.lines()
    assert ledger["Client (s)"].sum() == pytest.approx(calls["Time (s)"].sum())
    waited = int(MARKED["joined"].rpartition(":")[2]) + 1
    row = ledger.set_index("Line").loc[f"lined_programs.py:{waited}"]
    assert row["Waiting (s)"] >= 2 * lined_programs.SECONDS
    assert row["Text"] == "whole.compute()"


CHECKS = {
    "arrays": [assert_sums],
    "mixed": [assert_sums],
    "fused_arrays": [assert_fused_group],
    "dataframes": [assert_shuffle],
    "delayed": [assert_client_seconds],
}
LIBRARY = """
import threading

def start(function, wait):
    lines = []
    thread = threading.Thread(target=lambda: (wait(), lines.append(function())))
    thread.start()
    return thread, lines

def call(function):
    thread, lines = start(function, lambda: None)
    thread.join()
    return lines[0]
"""


def test_a_librarys_thread_has_the_line_of_the_main_thread_in_this_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "site-packages"
    (directory / "with_threads").mkdir(parents=True)
    (directory / "with_threads/__init__.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(directory)
    with_threads = importlib.import_module("with_threads")
    number = sys._getframe().f_lineno + 1
    line = with_threads.call(current_line)
    assert line.place[:2] == (__file__, number)
    assert line.library[0] == with_threads.__file__
    # If the main thread is elsewhere, it is unknown for which line of the user the thread works.
    released = threading.Event()
    thread, lines = with_threads.start(current_line, released.wait)
    released.set()
    thread.join()
    assert lines[0].place[0] == with_threads.__file__


EXPRESSIONS = {"DASK_ARRAY__QUERY_PLANNING": "True"}, {"ARRAYS": "dask_array"}


@pytest.mark.parametrize(
    "program", [pytest.param("arrays", marks=pytest.mark.whole_program), "fused_arrays", "xarrays"]
)
@pytest.mark.parametrize("environment", EXPRESSIONS, ids=["query-planning", "dask-array"])
def test_array_expressions(environment: dict[str, str], program: str, tmp_path: Path) -> None:
    package = "dask_array" if "ARRAYS" in environment else "dask.array._array_expr"
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"there is no {package}")
    if program == "xarrays":
        pytest.importorskip("xarray")
        if package != "dask_array":
            pytest.skip("xarray asks for what arrays of dask.array's expressions do not have yet")
    command = [sys.executable, lined_programs.__file__, program, str(tmp_path)]
    path = {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        command, env={**os.environ, **environment, **path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    analyser = TraceAnalyser(tmp_path, progress=False)
    whole, right, wrong = seconds_of(analyser, json.loads(done.stdout.splitlines()[-1]), MARKED)
    assert (whole > 0, wrong) == (True, 0)
    assert right >= 0.95 * whole
    assert_sums(analyser)


def keys_known(dask_scheduler: Any) -> set[Any]:
    """Return the keys that the scheduler, in this process, knows."""
    gc.collect()  # futures may be in reference cycles
    return set(dask_scheduler.tasks)


def test_the_plan_of_two_computations(client: Client, tmp_path: Path) -> None:
    """Both use the persisted chunks and compute the same tasks.

    Their results stay on the cluster, because some versions of Dask add tasks to fetch them.
    """
    with dasfprof.profile(client, directory=tmp_path) as run:
        x = da.random.random((8, 10), chunks=(2, 10)).persist()
        wait(x)
        known = client.run_on_scheduler(keys_known)
        for _ in range(2):
            sums = (x + 1).sum(axis=0, split_every=4).persist()
            wait(sums)
            del sums
            wait_until(lambda: client.run_on_scheduler(keys_known) <= known)
    analyser = run.analyser(progress=False)
    plan, edges = analyser.plan(), analyser.plan_edges()
    assert plan["Computation"].tolist() == [1, 2, 2, 3, 3]
    assert plan["Tasks"].tolist() == plan["Partitions"].tolist() == [4, 4, 1, 4, 1]
    assert plan["Again"].tolist() == [0, 0, 0, 4, 1]
    nodes = plan["Node"].tolist()
    handed = edges[["From", "To", "Tasks"]].to_numpy().tolist()
    assert handed == [
        [nodes[0], nodes[1], 4], [nodes[1], nodes[2], 1],
        [nodes[0], nodes[3], 4], [nodes[3], nodes[4], 1],
    ]  # fmt: skip
    assert edges["On Path"].tolist() == [0, 1, 0, 1]
    assert edges["Size (MB)"].tolist() == [4 * 2 * 10 * 8 / 1e6, 4 * 10 * 8 / 1e6] * 2
    assert plan["Input (MB)"].tolist() == [0, *edges["Size (MB)"]]


CHANGED = "the file's code is not what ran: it has changed since, is another, or was rewritten"


def test_the_text_of_a_line(client: Client, tmp_path: Path) -> None:
    """It comes from the file if the line's code does. Values are not recorded."""
    secret = os.urandom(12).hex()
    made: dict[str, Any] = {}
    exec(compile("def told(client, f):\n    return client.submit(f, 1)", "<told>", "exec"), made)
    changed = tmp_path / "changed.py"
    changed.write_text("def told(client, f):\n    return client.submit(f, 2)\n")
    other: dict[str, Any] = {}
    exec(compile(changed.read_text(), str(changed), "exec"), other)
    changed.write_text("# It was changed since.\ndef told(client, f):\n    pass\n")
    with dasfprof.profile(client, directory=tmp_path / "run") as run:
        lined_programs.sends_one(client, secret)
        made["told"](client, abs).result()
        other["told"](client, abs).result()
    database = MultiEventDatabase(run.files())
    lines = TraceAnalyser(database, progress=False).trace.lines.set_index("line")
    text = "return client.submit(len, value, pure=False).result()"
    assert lines.loc[MARKED["sent"], "text"].startswith(text)
    assert pd.isna(lines.loc[MARKED["sent"], "missing"])
    for name, why in (("<told>:2", "there is no such file"), ("changed.py:2", CHANGED)):
        assert pd.isna(lines.loc[name, "text"])
        assert lines.loc[name, "missing"] == why
    events = repr(list(database.get_traces()))
    assert text in events
    assert secret not in events


def test_cells_of_a_notebook(client: Client, tmp_path: Path) -> None:
    shells = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    shell = shells.instance()
    shell.user_ns |= {"client": client, "cost": lined_programs.cost}
    try:
        with dasfprof.profile(client, directory=tmp_path) as run:
            shell.run_cell("n = 1", store_history=True).raise_error()
            cell = "n += 1\none = client.submit(cost, n, 'celled', pure=False)\none.result()"
            shell.run_cell(cell, store_history=True).raise_error()
    finally:
        shells.clear_instance()
    ledger = run.analyser(progress=False).lines().set_index("Line")
    assert ledger.loc["In[2]:2", "Tasks"] == 1
    assert ledger.loc["In[2]:2", "Text"] == "one = client.submit(cost, n, 'celled', pure=False)"
    assert ledger.loc["In[2]:3", "Waiting (s)"] > 0


def test_lines_of_c_code_of_unsent_and_of_inner_tasks(client: Client, tmp_path: Path) -> None:
    """Functions such as `map` and `sorted` have no frame. A lambda that they call is a line."""
    submit = functools.partial(client.submit, lined_programs.cost, pure=False)

    def submits() -> Any:
        with worker_client() as inner:
            return inner.submit(abs, -1, pure=False).result()

    with dasfprof.profile(client, directory=tmp_path) as run:
        client.gather(list(map(submit, (1, 2), ("mapped", "mapped"))))  # at: mapped
        futures = sorted(
            (1, 2),
            key=lambda n: submit(n, "keyed").result(),  # at: keyed
        )
        client.submit(submits, pure=False).result()
        dask.delayed(lined_programs.cost)(2, "first")  # the first line is written at once
        dask.delayed(lined_programs.cost)(3, "unsent")  # at: unsent
    assert futures == [1, 2]
    analyser, marked = run.analyser(progress=False), marked_lines(__file__)
    counts = analyser.lines().set_index("Line")["Tasks"]
    assert [counts[marked[name]] for name in ("mapped", "keyed")] == [2, 2]
    assert marked["unsent"] in set(analyser.trace.lines["line"])
    tasks = analyser.trace.tasks.set_index("function")
    assert tasks.loc["abs", "no_line"] == OF_OTHERS
    assert str(tasks.loc["submits", "line"]).startswith("test_recorded_lines.py:")


def test_no_text_where_no_code_is_recorded(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path, record_code=False) as run:
        lined_programs.futures_in_loops(client)
    analyser = run.analyser(progress=False)
    assert set(analyser.trace.lines["missing"]) == {"not recorded"}
    assert analyser.trace.lines["text"].isna().all()
    tasks = analyser.lines().set_index("Line")["Tasks"]
    assert [tasks[MARKED[name]] for name in ("submitted", "chained")] == [4, 4]
