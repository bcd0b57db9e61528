"""Registry of analyses: one declaration serves methods, commands, files and type checkers."""

import inspect
import math
import pydoc
from typing import Any

import pandas as pd
import pytest
from methods_stub import PATH, stub_text
from traces import Plan, filled, made_trace, record, usage

from dasfprof import TraceAnalyser
from dasfprof.analysis.tables import questions
from dasfprof.errors import InvalidArgumentError

#: Analyses whose tables have rows even if no task ran.
HAVE_ROWS = {"diagnose", "cost", "workers", "what_if", "scaling", "memory_forecast"}
HAVE_ROWS |= {"node_resource_usage", "processes_resource_usage"}


def test_the_stub_is_that_of_the_questions() -> None:
    assert PATH.read_text(encoding="utf-8") == stub_text(), (
        "the questions changed: python tests/methods_stub.py"
    )


def test_each_question_is_a_method_with_its_documentation() -> None:
    for question in questions.all():
        method = getattr(TraceAnalyser, question.name)
        _, *parameters = inspect.signature(method).parameters.values()
        assert parameters == list(question.signature.parameters.values()), question.name
        assert "progress" not in inspect.signature(method).parameters
        assert inspect.getdoc(method) == inspect.getdoc(question.answer)
        assert question.summary in pydoc.render_doc(TraceAnalyser, renderer=pydoc.plaintext)
        assert question.title and question.group in questions.GROUPS


def test_names_are_distinct() -> None:
    every = questions.all()
    names = [name for item in every for name in {item.name, item.short, item.file_stem} - {None}]
    assert len(names) == len(set(names))
    pages = [item.page for item in every if item.page is not None]
    places = [item.overview for item in every if item.overview is not None]
    assert len(pages) == len(set(pages))
    assert sorted(places) == list(range(1, len(places) + 1))


def test_steps_are_asked_about_where_there_are_any() -> None:
    without = made_trace([])
    assert [item.name for item in questions.overview(without)] == [
        "diagnose",
        "time_accounting",
        "per_function_bottleneck",
        "per_task_bottleneck",
        "per_worker_task_balance",
    ]


@pytest.mark.parametrize(
    ("text", "name", "arguments", "file_stem"),
    [
        ("function", "per_function_bottleneck", {}, "function_bottleneck"),
        ("per_function_bottleneck", "per_function_bottleneck", {}, "function_bottleneck"),
        ("function_bottleneck", "per_function_bottleneck", {}, "function_bottleneck"),
        ("diagnose()", "diagnose", {}, "findings"),
        ("critical-path-summary", "critical_path_summary", {}, "critical_path_summary"),
        (' imbalance("step")', "imbalance", {"by": "step"}, "imbalance_by_step"),
        ("task_counts(interval=0.5)", "task_counts", {"interval": 0.5}, "task_counts_interval_0.5"),
        (
            "what_if(speedup={'a/b': 2})",
            "what_if",
            {"speedup": {"a/b": 2}},
            "what_if_speedup_a-b-2",
        ),
    ],
)
def test_a_question_as_text(text: str, name: str, arguments: Any, file_stem: str) -> None:
    request = questions.parse(text)
    assert (request.question.name, request.arguments) == (name, arguments)
    assert request.file_stem == file_stem


@pytest.mark.parametrize(
    "text",
    [
        *("", "no_such_question", "no-such-question", "transfers(", "transfers(x)"),
        *("transfers(**{'by': 'host'})", "transfers(*['host'])", "transfers(by=open('x'))"),
        *("transfers.__class__", "[transfers]", "(lambda: 1)()"),
    ],
)
def test_text_that_is_no_question(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="question"):
        questions.parse(text)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return Plan(filled(["f"], 1.0, count=4)).write(tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize(
    ("name", "argument", "values", "message"),
    [
        ("chunk_sizing", "overhead", [0.0, 1.0], "overhead="),
        ("memory_at", "time", [-1.0, 1e9, math.nan], "since the start of the run"),
        ("memory_forecast", "workers", [[0], 3], "workers="),
        ("memory_forecast", "threads", [0], "threads="),
        ("memory_forecast", "memory_limit", [-1], "memory_limit="),
        ("scaling", "workers", [[2, 0], 4, ["4"]], "workers="),
        ("task_counts", "interval", [0], "interval=0"),
        ("task_counts", "interval", [1e-9], "intervals"),
        ("transfers", "intervall", [1.0], r"transfers: .*its arguments are \(by:"),
        ("what_if", "workers", [0, 1.5, True, "4"], "workers=.*: expected a positive integer"),
        ("what_if", "threads", [-1], "threads=-1"),
        ("what_if", "bandwidth", [-5, 0, math.nan, "fast"], "expected a positive number of bytes"),
        ("what_if", "speedup", [2], "speedup=2: expected a dict of functions' names"),
        ("what_if", "speedup", [{"none": 2}], "no such function. Some of its functions: f"),
        ("what_if", "speedup", [{"f": 0}, {"f": math.inf}], "expected a positive factor"),
    ],
)
def test_arguments_that_make_no_sense(
    name: str, argument: str, values: list[Any], message: str, planned: TraceAnalyser
) -> None:
    for value in values:
        with pytest.raises(InvalidArgumentError, match=message):
            getattr(planned, name)(**{argument: value})


def test_groupings_that_there_are_not(planned: TraceAnalyser) -> None:
    grouped = [item for item in questions.all() if item.further_groupings]
    assert len(grouped) >= 10
    for question in grouped:
        required = {"time": 1.0} if question.needs_arguments else {}
        with pytest.raises(InvalidArgumentError, match=r"by='key': expected one of \w+, \w+"):
            getattr(planned, question.name)(by="key", **required)


def test_an_answer_is_that_of_the_method() -> None:
    analyser = TraceAnalyser(made_trace([]))
    answer = questions.parse('time_accounting("host")').table(analyser)
    pd.testing.assert_frame_equal(answer, analyser.time_accounting("host"))


@pytest.fixture(scope="module")
def without_tasks(tmp_path_factory: pytest.TempPathFactory) -> list[TraceAnalyser]:
    """Analyse traces without a file, events, or a scheduler, and one with a single sample."""
    sampled = record(tmp_path_factory.mktemp("sampled") / "run", [usage(1.0)])
    traces = [], made_trace([]), made_trace([], scheduler=False), sampled
    return [*map(TraceAnalyser, traces)]


@pytest.mark.parametrize("question", questions.all(), ids=lambda item: item.name)
def test_a_trace_without_tasks_has_all_tables(
    question: Any, without_tasks: list[TraceAnalyser]
) -> None:
    if question.needs_arguments:
        return
    for by in (None, *question.further_groupings):
        for analyser in without_tasks:
            request = questions.Request(question, {} if by is None else {"by": by})
            assert not len(request.table(analyser)) or question.name in HAVE_ROWS
