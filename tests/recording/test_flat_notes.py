"""Notes that lie flat in one list become rows; one that cannot be read costs no other."""

from __future__ import annotations

import ast
import inspect
import logging
import textwrap
from typing import Any

import pytest

from dasfprof.recording.guard import HookGuard
from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
from dasfprof.recording.task_runs import task_notes
from dasfprof.recording.task_runs.task_notes import Fields, FlatNotes
from dasfprof.schema.events import Schema

PAIR = Schema("I", "Pair", (("timestamp", "float"),), (("double", "int"),))
FIELDS = ("timestamp", "number", "spare")


def doubled(fields: Fields) -> dict[str, Any]:
    return {**fields, "double": [2 * int(number) for number in fields["number"]]}


def folded(notes: list[Any]) -> list[tuple[str, Any, list[int]]]:
    rows = FlatNotes(PAIR, FIELDS, doubled, HookGuard()).fold(notes)
    return [(schema.name, list(given.columns), list(at)) for schema, given, at in rows]  # type: ignore[union-attr]


def pair(number: Any) -> list[Any]:
    return [float(number) if type(number) is int else 0.0, number, None]


def test_notes_become_rows_in_their_order() -> None:
    notes = [*pair(0), *pair(1), *pair(2)]
    assert folded(notes) == [("Pair", [[0.0, 1.0, 2.0], [0, 2, 4]], [0, 1, 2])]
    assert folded([]) == []


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("bad", [0, 1, 4, 7])
def test_a_note_that_cannot_be_folded_costs_itself(
    caplog: pytest.LogCaptureFixture, count: int, bad: int
) -> None:
    caplog.set_level(logging.WARNING, "dasfprof")
    numbers: list[Any] = ["bad" if number == bad else number for number in range(count)]
    notes = [item for number in numbers for item in pair(number)]
    good = [number for number in numbers if number != "bad"]
    given = folded(notes)
    assert [columns[1] for _, columns, _ in given] == ([[2 * n for n in good]] if good else [])
    assert len(caplog.records) == (bad < count)


@pytest.mark.parametrize(
    ("hook", "fields"),
    [
        (WorkerTaskPlugin._note_run, task_notes.RUN),
        (SchedulerTaskPlugin._task_run, task_notes.SENT_RUN),
    ],
)
def test_hooks_write_the_fields_in_the_order_of_their_declaration(
    hook: Any, fields: tuple[str, ...]
) -> None:
    """Each item is a variable with the field's name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(hook)))
    tuples = [
        tuple(getattr(item, "id", "") for item in node.elts)
        for node in ast.walk(tree)
        if isinstance(node, ast.Tuple)
    ]
    assert fields in tuples
    assert len(set(fields)) == len(fields)


@pytest.mark.parametrize(
    ("notes", "fields"),
    [
        (task_notes.TaskNotes(HookGuard(), {}), task_notes.RUN),
        (task_notes.scheduler_notes(HookGuard()), task_notes.SENT_RUN),
    ],
)
def test_all_columns_of_all_schemas_are_made(notes: FlatNotes, fields: tuple[str, ...]) -> None:
    facts = dict.fromkeys(fields)
    facts |= {"timestamp": 1.0, "done": 1.0, "now": 1.0, "priority": (0, 1, 2), "key": "x-1"}  # type: ignore[dict-item]
    ((schema, rows, _),) = notes.fold([facts[name] for name in fields])
    assert len(rows) == 1
    assert len(rows.columns) == len(schema.codecs)  # type: ignore[union-attr]
