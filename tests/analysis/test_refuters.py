"""Each rule has a refuter, which contradicts findings with changed figures or causes."""

from dataclasses import replace
from pathlib import Path

import pytest
from diagnosed_plans import found
from refuters import REFUTERS, refute
from refuters.evidence import Evidence
from refuters.figures import is_close
from refuters.steps import Steps
from traces import Plan, Task, filled

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis import RULES
from dasfprof.analysis.diagnosis.registry import Finding
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.wording import Share


def test_each_rule_has_a_refuter() -> None:
    assert REFUTERS.keys() == {*RULES, "rule-failed"}


def test_figures_are_compared_as_exactly_as_they_are_recorded() -> None:
    assert is_close(2.0, 2.0001)
    assert not is_close(2.0, 2.001)
    assert is_close(16, 16) and not is_close(16, 17)
    assert is_close(0.0, 0.0) and not is_close(0.0, 1e-6)


def test_steps() -> None:
    two, one = Steps.of([0.0, 1.0], [4.0, 3.0]), Steps.of([2.0], [5.0])
    assert two.integral() == 6.0
    assert two.integral(0.5, 2.0) == 2.5
    assert two.least(one).integral() == 2.0
    assert two.less(one).integral() == 4.0
    assert two.where(lambda number: number == 2).integral() == 2.0


def test_thread_time_of_a_worker_without_first_events_begins_with_those_that_remain(
    tmp_path: Path,
) -> None:
    tasks = [Task(f"load-{n}", 0, n, n + 1.0) for n in range(8)]
    tasks += [Task(f"save-{n}", 1, n, n + 1.0) for n in range(5, 8)]
    analyser = Plan(tasks, threads=1, scheduler=False, resources=False).write(tmp_path)
    lower_bound = Evidence(tmp_path.glob("*.msgpack")).thread_seconds
    assert lower_bound == pytest.approx(8.0 + 3.0)
    assert RunFigures(analyser.run).thread_seconds >= 0.9999 * lower_bound


def slow_function() -> Plan:
    return Plan(filled(["load"], 0.1) + filled(["fit"], 1.0, since=0.4))


def findings_of(plan: Plan, directory: Path) -> list[Finding]:
    """Return the findings of a run, and assert that its events do not contradict them."""
    found(plan, directory)
    return TraceAnalyser(directory, progress=False).findings()


def test_each_changed_figure_is_refuted(tmp_path: Path) -> None:
    (finding,) = findings_of(slow_function(), tmp_path)
    assert finding.rule == "dominant-function"
    assert finding.to_dict()["Figures"]["median"] == {"value": 1.0, "unit": "s"}
    changed = {"function": "load", "share": 0.99, "median": 1.001, "tasks": 17, "lasted": 16.01}
    for name, other in {**changed, "others": 0.101, "on_cpu": 0.99}.items():
        figures = {**finding.figures, name: other}
        assert refute(tmp_path, [replace(finding, figures=figures)]), name


def test_functions_of_the_program_are_named_with_a_function_of_dask(tmp_path: Path) -> None:
    facts = {"name": "fit", "source": None}
    apply = {"function": "dask.utils.apply", "file": "/x/site-packages/dask/utils.py", "line": 47}
    train = {
        "function": "model.train",
        "file": "/me/model.py",
        "line": 7,
        "missing": "no such file",
    }
    sources = [{**apply, "missing": "of a library", **facts}, {**train, **facts}]
    (finding,) = findings_of(replace(slow_function(), sources=sources), tmp_path)
    assert finding.figures["calls"] == "train (model.py:7)"
    assert "Speed up train (model.py:7)." in finding.to_dict()["Suggestion"]


def test_a_name_that_dask_gives_may_be_that_of_a_function_of_the_program(tmp_path: Path) -> None:
    tasks = filled(["load"], 0.1) + filled(["chunk"], 1.0, since=0.4)
    facts = {"file": "/me/model.py", "line": 7, "source": None, "missing": "no such file"}
    load, chunk = (
        {"name": name, "function": f"model.{name}", **facts} for name in ("load", "chunk")
    )
    texts = []
    for sources in ([load], [load, chunk], []):
        (finding,) = findings_of(Plan(tasks, sources=sources), tmp_path / str(len(sources)))
        texts.append(str(finding.to_dict()))
    assert ["chunk is Dask's name for" in text for text in texts] == [True, False, False]


def test_sentences_are_free_but_seconds_beyond_the_run_are_refuted(tmp_path: Path) -> None:
    (finding,) = findings_of(slow_function(), tmp_path)
    text = "Most of the time goes into one function."
    assert not refute(tmp_path, [replace(finding, text=text, evidence="")])
    (field,) = refute(tmp_path, [replace(finding, text=f"{text} ({{share}} of it)", evidence="")])
    assert "{share} is not filled in" in field
    figures = {**finding.figures, "more": Share(4.01)}
    (seconds, share) = refute(tmp_path, [replace(finding, seconds=4.5, figures=figures)])
    assert "4.5 s are at stake in a run of 4.4 s" in seconds
    assert "a share of 4.01" in share


def test_errors_come_first_unless_a_client_had_given_up_all_that_erred(tmp_path: Path) -> None:
    plan = slow_function()
    plan.tasks[-1].state, plan.tasks[-1].exception = "erred", "KeyError('shard')"
    errors, function = findings_of(plan, tmp_path)
    assert (errors.rule, function.rule) == ("failed-tasks", "dominant-function")
    function = replace(function, severity="medium")
    errors = replace(errors, severity="low")
    assert refute(tmp_path, [function, errors]) == ["failed tasks come after dominant-function"]
    errors = replace(errors, figures={**errors.figures, "nobodys": True})
    (nobody_gave_up,) = refute(tmp_path, [function, errors])
    assert "no client had given up all that erred" in nobody_gave_up
