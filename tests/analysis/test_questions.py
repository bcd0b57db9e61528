"""The registry of questions: one registration serves methods, shell, files and type checkers."""

from __future__ import annotations

import inspect
import pydoc

import pandas as pd
import pytest
from methods_stub import PATH, stub_text
from traces import made_trace

from dasfprof import TraceAnalyser
from dasfprof.analysis.tables import questions
from dasfprof.errors import InvalidArgumentError


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
        (
            ' time_accounting("worker")',
            "time_accounting",
            {"by": "worker"},
            "time_accounting_by_worker",
        ),
        ("critical-path-summary", "critical_path_summary", {}, "critical_path_summary"),
        (
            "task_counts(interval=0.5)",
            "task_counts",
            {"interval": 0.5},
            "task_counts_interval_0.5",
        ),
        (
            "what_if(speedup={'a/b': 2})",
            "what_if",
            {"speedup": {"a/b": 2}},
            "what_if_speedup_a-b-2",
        ),
    ],
)
def test_a_question_as_text(
    text: str, name: str, arguments: dict[str, object], file_stem: str
) -> None:
    request = questions.parse(text)
    assert (request.question.name, request.arguments) == (name, arguments)
    assert request.file_stem == file_stem


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no_such_question",
        "no-such-question",
        "transfers(",
        "transfers(x)",
        "transfers(**{'by': 'host'})",
        "transfers(*['host'])",
        "transfers(by=open('x'))",
        "transfers.__class__",
        "[transfers]",
        "(lambda: 1)()",
    ],
)
def test_text_that_is_no_question(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="question"):
        questions.parse(text)


def test_arguments_that_a_question_does_not_take() -> None:
    with pytest.raises(InvalidArgumentError, match=r"transfers: .*its arguments are \(by:"):
        questions.parse("transfers(intervall=1.0)")


def test_an_answer_is_that_of_the_method() -> None:
    analyser = TraceAnalyser(made_trace([]))
    answer = questions.parse('time_accounting("host")').table(analyser)
    pd.testing.assert_frame_equal(answer, analyser.time_accounting("host"))


@pytest.mark.parametrize(
    "name", [question.name for question in questions.all() if not question.needs_arguments]
)
def test_a_trace_without_events_has_an_answer_to_each_question(name: str) -> None:
    table = getattr(TraceAnalyser(made_trace([])), name)()
    assert isinstance(table, pd.DataFrame)
