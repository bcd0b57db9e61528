"""Lines of the program in the analysis: attribution of tasks, calculated by hand."""

from pathlib import Path
from typing import Any

import pytest
from lined_runs import FIRST, LOAD, OTHER, SCALE, SECOND, SUM, Run, opened, write_lines, write_run

from dasfprof import TraceAnalyser
from dasfprof.analysis.trace.lines import MADE_BY_DASK, NO_GRAPH, NOT_RECORDED, OF_OTHERS


def lines_of(analyser: TraceAnalyser) -> dict[Any, Any]:
    """Return the line of each task, or the reason why there is none, by key."""
    trace = analyser.trace
    keys = trace.keys.texts(trace.tasks["key_id"].to_numpy())
    known, why = (trace.tasks[name].astype(object) for name in ("line", "no_line"))
    assert (known.isna() == why.notna()).all()
    return dict(zip(keys, known.where(known.notna(), why), strict=True))


def repetitions(analyser: TraceAnalyser) -> list[dict[str, Any]]:
    return [one.to_dict() for one in analyser.findings() if one.rule == "recomputation"]


def test_layers_fused_into_one_are_a_group_and_its_other_tasks_are_not(tmp_path: Path) -> None:
    """`scale` has no tasks. Tasks of `sum` without inputs from `sum` do its work."""
    runs: list[Run] = [
        ((LOAD, 0), [], 0.0, 1.0, FIRST),
        ((SUM, 0), [(LOAD, 0)], 1.0, 2.0, FIRST),
        ((SUM, 1), [(SUM, 0)], 3.0, 4.0, FIRST),
    ]
    layers = [(-3.0, 10, LOAD, []), (-2.0, 20, SCALE, [LOAD]), (-1.0, 30, SUM, [SCALE])]
    analyser = opened(tmp_path, runs, layers)
    lines = ["pipeline.py:1", "pipeline.py:2, 3", "pipeline.py:3"]
    assert [*lines_of(analyser).values()] == lines
    group = analyser.trace.lines.set_index("line").loc["pipeline.py:2, 3"]
    assert (group["fused"], group["number"]) == (("pipeline.py:2",), 3)
    ledger = analyser.lines()
    assert list(ledger["Line"]) == [*lines[::-1], "pipeline.py:4", "(idle)"]
    assert ledger["Thread Time (s)"].tolist() == pytest.approx([4.0, 2.0, 1.0, 0.0, 7.0])
    ledger = ledger.set_index("Line")
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
    layers = [(-1.0, 10, LOAD, []), (2.0, 20, LOAD, []), (9.0, 30, LOAD, [])]
    lines = lines_of(opened(tmp_path, runs, layers))
    assert lines == {f"('{LOAD}', {n})": f"pipeline.py:{n + 1}" for n in (0, 1)}


def test_all_tasks_with_the_hash_of_a_layer_have_its_line(tmp_path: Path) -> None:
    """Keys of map_overlap() contain fractions, and keys of cumsum() contain texts."""
    keys: list[Any] = [(f"getitem-{'a' * 32}", 0.9, 1), (LOAD, "extra", 0), ("a", "b", 0)]
    runs: list[Run] = [(key, [], float(n), 1.0, FIRST) for n, key in enumerate(keys)]
    lines = lines_of(opened(tmp_path, runs, [(-1.0, 10, LOAD, [])]))
    assert [*lines.values()] == ["pipeline.py:1", "pipeline.py:1", MADE_BY_DASK]


def test_a_line_may_have_sent_a_whole_graph(tmp_path: Path) -> None:
    """Only some keys of `map` are recorded, whose futures may have existed before."""
    keys = [f"inc-{digit * 32}" for digit in "1234"]
    runs: list[Run] = [(key, [], 0.0, 1.0, FIRST) for key in keys[:3]]
    graphs = [(-1.0, 40, "inc-" + "9" * 32), (-1.0, 40, keys[1])]
    lines = lines_of(opened(tmp_path, [*runs, (keys[3], [], 6.0, 1.0, SECOND)], [], graphs))
    assert lines == {**dict.fromkeys(keys[:3], "pipeline.py:4"), keys[3]: MADE_BY_DASK}


def test_what_is_computed_again_is_named_by_the_line_that_built_it(tmp_path: Path) -> None:
    runs: list[Run] = [((LOAD, 0), [], 1.0, 1.0, FIRST), ((LOAD, 0), [], 6.0, 1.0, SECOND)]
    (found,) = repetitions(opened(tmp_path, runs, [(-1, 20, LOAD, [])]))
    assert "collection that is built at pipeline.py:2 (text 2)" in found["Suggestion"]
    (change,) = found["Changes"]
    assert change["settings"] == {"persist": "pipeline.py:2"}


@pytest.mark.parametrize(("chunk", "is_repeated"), [(0, True), (1, False)])
def test_what_was_fused_into_several_tasks(tmp_path: Path, chunk: int, is_repeated: bool) -> None:
    """`load` takes 3 of 4 s in each task, and the second task repeats it for the same chunk."""
    load, scale, total = (f"{name}-{n * 32}" for name, n in (("load", "1"), ("x", "2"), ("y", "3")))
    runs: list[Run] = [((scale, 0), [], 0.0, 4.0, FIRST), ((total, chunk), [], 6.0, 4.0, SECOND)]
    times = [0.05 + 0.1 * n for n in range(40)]
    samples = [(begin + at, "load" if at < 3 else "use") for begin in (0, 6) for at in times]
    layers = [(-3.0, 10, load, []), (-2.0, 20, scale, [load]), (5.0, 30, total, [load])]
    repeated = repetitions(opened(tmp_path, runs, layers, samples=samples))
    assert len(repeated) == is_repeated
    for finding in repeated:
        assert "collection that is built at pipeline.py:1 (text 1)" in finding["Suggestion"]
        # One task runs at a time, whatever the number of threads.
        assert finding["Seconds at stake (s)"] == pytest.approx(3.0, rel=0.01)
        assert finding["Figures"]["tasks"]["value"] == 1 and finding["Figures"]["fused"]


@pytest.mark.parametrize(
    ("stack", "layer", "between", "is_repeated"),
    [
        # The layer readcsv calls pandas.read_csv().
        ("Task.__call__ > read_csv > parse", "readcsv", ("", ""), True),
        # The function that uses the table calls a function of the same name itself.
        ("Task.__call__ > use > read_csv", "readcsv", ("", ""), False),
        # The first chunks of two slices, or of an array and a slice of it, are different.
        ("load", "load", ("getitem2", "getitem4"), False),
        ("load", "load", ("getitem4", "getitem4"), True),
        ("load", "load", ("", "getitem4"), False),
        ("getter", "load", ("", ""), True),
        # Each task also reads its own file. Samples do not show which of the two.
        ("getter", "load", ("file2", "file4"), False),
    ],
)
def test_what_tasks_of_two_layers_repeat_of_a_third(
    stack: str, layer: str, between: tuple[str, str], is_repeated: bool, tmp_path: Path
) -> None:
    """Both use that layer, a slice of it, or also a file; samples find them in a stack."""
    load, *names = (f"{name}-{n * 32}" for name, n in ((layer, "1"), ("x", "3"), ("y", "5")))
    runs: list[Run] = [
        ((name, 0), [], 6.0 * n, 4.0, graph)
        for n, (name, graph) in enumerate(zip(names, (FIRST, SECOND), strict=True))
    ]
    samples = [(6 * n + 0.05 + 0.1 * each, stack) for n in (0, 1) for each in range(40)]
    layers: list[Any] = [(-3.0, 10, load, [])]
    for name, other in zip(names, between, strict=True):
        inner, is_file = f"{other[:-1]}-{other[-1:] * 32}", other.startswith("file")
        if other:
            layers.append((-2.0, 20, inner, [] if is_file else [load]))
        taken = [load, inner] if is_file else [inner] if other else [load]
        layers.append((-1.0, 30, name, taken))
    assert bool(repetitions(opened(tmp_path, runs, layers, samples=samples))) == is_repeated


def test_why_a_line_is_unknown(tmp_path: Path) -> None:
    runs: list[Run] = [((LOAD, 0), [], 0.0, 1.0, FIRST), ((OTHER, 0), [], 1.0, 1.0, FIRST)]
    layers: list[Any] = [(-1.0, 10, LOAD, [])]
    old = opened(tmp_path / "old", runs)
    assert set(lines_of(old).values()) == {NOT_RECORDED}
    assert len(old.trace.lines) == 0
    assert list(old.lines()["Line"]) == [f"({NOT_RECORDED})", "(idle)"]
    others = opened(tmp_path / "others", runs, layers, client="another")
    assert list(lines_of(others).values()) == ["pipeline.py:1", OF_OTHERS]
    alone = opened(tmp_path / "alone", [(*run[:4], "unheard-of") for run in runs], layers)
    assert list(lines_of(alone).values()) == ["pipeline.py:1", NO_GRAPH]
    write_lines(tmp_path / "without", layers)  # no task ran
    without = TraceAnalyser(tmp_path / "without", progress=False).lines()
    assert without[["Line", "Client (s)"]].to_numpy().tolist() == [["pipeline.py:4", 1.0]]


def test_files_of_one_name_are_told_apart_and_cells_have_theirs(tmp_path: Path) -> None:
    names = LOAD, SCALE, SUM, OTHER
    write_run(tmp_path, [((name, 0), [], float(n), 1.0, FIRST) for n, name in enumerate(names)])
    layers = [(-1.0, 10 * n, name, []) for n, name in enumerate(names, 1)]
    write_lines(tmp_path, layers, files=("/a/run.py", "/b/run.py", "/b/other.py", "<stdin>"))
    lines = lines_of(TraceAnalyser(tmp_path, progress=False))
    assert [*lines.values()] == ["/a/run.py:1", "/b/run.py:2", "other.py:3", "<stdin>:4"]
