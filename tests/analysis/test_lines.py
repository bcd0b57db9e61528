"""Lines of the program in the analysis: which task belongs to which, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lined_runs import FIRST, LOAD, OTHER, SCALE, SECOND, SUM, Run, write_lines, write_run

from dasfprof import TraceAnalyser
from dasfprof.analysis.trace.lines import MADE_BY_DASK, NO_GRAPH, NOT_RECORDED, OF_OTHERS


def lines_of(directory: Path) -> dict[Any, Any]:
    """The line of each task, or why there is none, by key."""
    trace = TraceAnalyser(directory, progress=False).trace
    keys = trace.keys.texts(trace.tasks["key_id"].to_numpy())
    known = trace.tasks["line"].astype(object)
    why = trace.tasks["no_line"].astype(object)
    assert (known.isna() == why.notna()).all()
    return dict(zip(keys, known.where(known.notna(), why), strict=True))


def test_layers_fused_into_one_are_a_group_and_its_other_tasks_are_not(tmp_path: Path) -> None:
    """`scale` has no tasks, so that those of `sum` which take none of their own do its work."""
    runs: list[Run] = [
        ((LOAD, 0), [], 0.0, 1.0, FIRST),
        ((SUM, 0), [(LOAD, 0)], 1.0, 2.0, FIRST),
        ((SUM, 1), [(SUM, 0)], 3.0, 4.0, FIRST),
    ]
    write_run(tmp_path, runs)
    layers = [(-3.0, 10, LOAD, []), (-2.0, 20, SCALE, [LOAD]), (-1.0, 30, SUM, [SCALE])]
    write_lines(tmp_path, layers)
    assert lines_of(tmp_path) == {
        f"('{LOAD}', 0)": "pipeline.py:1",
        f"('{SUM}', 0)": "pipeline.py:2, 3",
        f"('{SUM}', 1)": "pipeline.py:3",
    }
    analyser = TraceAnalyser(tmp_path, progress=False)
    group = analyser.trace.lines.set_index("line").loc["pipeline.py:2, 3"]
    assert (group["fused"], group["number"]) == (("pipeline.py:2",), 3)
    ledger = analyser.lines()
    assert list(ledger["Line"]) == [
        "pipeline.py:3", "pipeline.py:2, 3", "pipeline.py:1", "pipeline.py:4", "(idle)"
    ]  # fmt: skip
    ledger = ledger.set_index("Line")
    assert ledger["Thread Time (s)"].to_dict() == pytest.approx(
        {"pipeline.py:3": 4.0, "pipeline.py:2, 3": 2.0, "pipeline.py:1": 1.0, "pipeline.py:4": 0.0,
         "(idle)": 7.0}
    )  # fmt: skip
    path = analyser.critical_path_summary()["Duration (s)"].sum()
    assert ledger["Critical Path (s)"].sum() == pytest.approx(path)
    assert ledger.loc["pipeline.py:4", ["Client (s)", "Waiting (s)"]].tolist() == [1.0, 0.75]
    assert ledger.loc["pipeline.py:1", "Text"] == "text 1"
    by_line = analyser.time_accounting(by="line").groupby("Line")["Thread Time (s)"].sum()
    assert by_line["pipeline.py:2, 3"] == pytest.approx(2.0)
    whole = analyser.time_accounting()["Thread Time (s)"].sum()
    assert ledger["Thread Time (s)"].sum() == pytest.approx(whole, rel=1e-12)


def test_a_layer_built_again_belongs_to_the_last_line_before_its_graph(tmp_path: Path) -> None:
    graphs = enumerate((FIRST, SECOND))
    runs: list[Run] = [((LOAD, n), [], 6.0 * n, 1.0, graph) for n, graph in graphs]
    write_run(tmp_path, runs)
    write_lines(tmp_path, [(-1.0, 10, LOAD, []), (2.0, 20, LOAD, []), (9.0, 30, LOAD, [])])
    assert lines_of(tmp_path) == {
        f"('{LOAD}', 0)": "pipeline.py:1", f"('{LOAD}', 1)": "pipeline.py:2"
    }  # fmt: skip


def test_a_line_may_have_sent_a_whole_graph(tmp_path: Path) -> None:
    """Of `map` a few keys are told, of futures that may have been there before."""
    keys = [f"inc-{digit * 32}" for digit in "1234"]
    runs: list[Run] = [(key, [], 0.0, 1.0, FIRST) for key in keys[:3]]
    write_run(tmp_path, [*runs, (keys[3], [], 6.0, 1.0, SECOND)])
    write_lines(tmp_path, [], [(-1.0, 40, "inc-" + "9" * 32), (-1.0, 40, keys[1])])
    assert lines_of(tmp_path) == {
        **dict.fromkeys(keys[:3], "pipeline.py:4"), keys[3]: MADE_BY_DASK
    }  # fmt: skip


def test_what_is_computed_again_is_named_by_the_line_that_built_it(tmp_path: Path) -> None:
    runs: list[Run] = [((LOAD, 0), [], 1.0, 1.0, FIRST), ((LOAD, 0), [], 6.0, 1.0, SECOND)]
    write_run(tmp_path, runs)
    write_lines(tmp_path, [(-1, 20, LOAD, [])])
    findings = TraceAnalyser(tmp_path, progress=False).findings()
    (found,) = [one.to_dict() for one in findings if one.rule == "recomputation"]
    what = (
        "Call persist() on the collection that is built at pipeline.py:2 (text 2) before you use it"
    )
    assert what in found["Suggestion"]
    (change,) = found["Changes"]
    assert change["settings"] == {"persist": "pipeline.py:2"}


@pytest.mark.parametrize(("chunk", "is_repeated"), [(0, True), (1, False)])
def test_what_was_fused_into_several_tasks_is_computed_again(
    tmp_path: Path, chunk: int, is_repeated: bool
) -> None:
    """Of 4 s of each task, `load` takes 3, which the second one repeats for the same chunk."""
    load, scale, total = (f"{name}-{n * 32}" for name, n in (("load", "1"), ("x", "2"), ("y", "3")))
    runs: list[Run] = [((scale, 0), [], 0.0, 4.0, FIRST), ((total, chunk), [], 6.0, 4.0, SECOND)]
    times = [0.05 + 0.1 * n for n in range(40)]
    samples = [(begin + at, "load" if at < 3 else "use") for begin in (0, 6) for at in times]
    write_run(tmp_path, runs, samples=samples)
    layers = [(-3.0, 10, load, []), (-2.0, 20, scale, [load]), (5.0, 30, total, [load])]
    write_lines(tmp_path, layers)
    findings = TraceAnalyser(tmp_path, progress=False).findings()
    repeated = [one.to_dict() for one in findings if one.rule == "recomputation"]
    assert len(repeated) == is_repeated
    for finding in repeated:
        assert (
            "persist() on the collection that is built at pipeline.py:1 (text 1)"
            in finding["Suggestion"]
        )
        # One task runs at a time, whatever the number of threads.
        assert finding["Seconds at stake (s)"] == pytest.approx(3.0, rel=0.01)
        assert finding["Figures"]["tasks"]["value"] == 1 and finding["Figures"]["fused"]


@pytest.mark.parametrize(
    ("stack", "is_repeated"),
    [
        # The layer readcsv calls pandas.read_csv().
        ("read_csv > parse", True),
        # The function that uses the table calls a function of the same name itself.
        ("use > read_csv", False),
    ],
)
def test_layers_are_found_in_samples_by_the_functions_that_tasks_call(
    tmp_path: Path, stack: str, is_repeated: bool
) -> None:
    load, *names = (f"{name}-{n * 32}" for name, n in (("readcsv", "1"), ("x", "3"), ("y", "5")))
    runs: list[Run] = [
        ((name, 0), [], 6.0 * n, 4.0, graph)
        for n, (name, graph) in enumerate(zip(names, (FIRST, SECOND), strict=True))
    ]
    stack = f"Task.__call__ > {stack}"
    samples = [(6 * n + 0.05 + 0.1 * each, stack) for n in (0, 1) for each in range(40)]
    write_run(tmp_path, runs, samples=samples)
    write_lines(tmp_path, [(-3.0, 10, load, []), *((-1.0, 30, name, [load]) for name in names)])
    findings = TraceAnalyser(tmp_path, progress=False).findings()
    assert ("recomputation" in {finding.rule for finding in findings}) == is_repeated


@pytest.mark.parametrize(
    ("inner", "is_repeated"), [(("2", "4"), False), (("4", "4"), True), ((None, "4"), False)]
)
def test_slices_of_one_array_are_other_chunks(
    tmp_path: Path, inner: tuple[str | None, str], is_repeated: bool
) -> None:
    """The first chunk of two slices, or of an array and a slice of it, is not the same chunk."""
    load, *names = (f"{name}-{n * 32}" for name, n in (("load", "1"), ("x", "3"), ("y", "5")))
    runs: list[Run] = [
        ((name, 0), [], 6.0 * n, 4.0, graph)
        for n, (name, graph) in enumerate(zip(names, (FIRST, SECOND), strict=True))
    ]
    samples = [(6 * n + 0.05 + 0.1 * each, "load") for n in (0, 1) for each in range(40)]
    write_run(tmp_path, runs, samples=samples)
    layers: list[Any] = [(-3.0, 10, load, [])]
    for name, digit in zip(names, inner, strict=True):
        before = load if digit is None else f"getitem-{digit * 32}"
        if digit is not None:
            layers.append((-2.0, 20, before, [load]))
        layers.append((-1.0, 30, name, [before]))
    write_lines(tmp_path, layers)
    findings = TraceAnalyser(tmp_path, progress=False).findings()
    assert ("recomputation" in {finding.rule for finding in findings}) == is_repeated


@pytest.mark.parametrize("has_files", [False, True])
def test_reading_may_be_of_an_array_that_is_not_shared(tmp_path: Path, has_files: bool) -> None:
    """`load` is shared. Where each task also reads a file of its own, samples do not tell which."""
    load, *names = (f"{name}-{n * 32}" for name, n in (("load", "1"), ("x", "3"), ("y", "5")))
    runs: list[Run] = [
        ((name, 0), [], 6.0 * n, 4.0, graph)
        for n, (name, graph) in enumerate(zip(names, (FIRST, SECOND), strict=True))
    ]
    samples = [(6 * n + 0.05 + 0.1 * each, "getter") for n in (0, 1) for each in range(40)]
    write_run(tmp_path, runs, samples=samples)
    layers: list[Any] = [(-3.0, 10, load, [])]
    for name, digit in zip(names, "24", strict=True):
        file = [f"file-{digit * 32}"] if has_files else []
        layers += [(-2.0, 20, each, []) for each in file]
        layers.append((-1.0, 30, name, [load, *file]))
    write_lines(tmp_path, layers)
    findings = TraceAnalyser(tmp_path, progress=False).findings()
    assert ("recomputation" in {finding.rule for finding in findings}) != has_files


def test_why_a_line_is_unknown(tmp_path: Path) -> None:
    runs: list[Run] = [((LOAD, 0), [], 0.0, 1.0, FIRST), ((OTHER, 0), [], 1.0, 1.0, FIRST)]
    (old, others, alone) = (tmp_path / name for name in ("old", "others", "alone"))
    for directory in (old, others, alone):
        directory.mkdir()
    write_run(old, runs)
    assert set(lines_of(old).values()) == {NOT_RECORDED}
    assert len(TraceAnalyser(old, progress=False).trace.lines) == 0
    ledger = TraceAnalyser(old, progress=False).lines()
    assert list(ledger["Line"]) == [f"({NOT_RECORDED})", "(idle)"]
    write_run(others, runs, client="another")
    write_lines(others, [(-1.0, 10, LOAD, [])])
    assert list(lines_of(others).values()) == ["pipeline.py:1", OF_OTHERS]
    write_run(alone, [(*run[:4], "unheard-of") for run in runs])
    write_lines(alone, [(-1.0, 10, LOAD, [])])
    assert list(lines_of(alone).values()) == ["pipeline.py:1", NO_GRAPH]


def test_files_of_one_name_are_told_apart_and_cells_have_theirs(tmp_path: Path) -> None:
    runs: list[Run] = [
        ((name, 0), [], float(n), 1.0, FIRST) for n, name in enumerate((LOAD, SCALE, SUM, OTHER))
    ]
    write_run(tmp_path, runs)
    layers = [(-1.0, 10 * n, name, []) for n, name in enumerate((LOAD, SCALE, SUM, OTHER), 1)]
    write_lines(tmp_path, layers, files=("/a/run.py", "/b/run.py", "/b/other.py", "<stdin>"))
    assert list(lines_of(tmp_path).values()) == [
        "/a/run.py:1", "/b/run.py:2", "other.py:3", "<stdin>:4"
    ]  # fmt: skip


def test_a_trace_without_tasks(tmp_path: Path) -> None:
    write_lines(tmp_path, [(-1.0, 10, LOAD, [])])
    ledger = TraceAnalyser(tmp_path, progress=False).lines()
    assert ledger["Line"].tolist() == ["pipeline.py:4"]
    assert ledger["Client (s)"].tolist() == [1.0]
