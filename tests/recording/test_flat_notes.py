"""Notes of several kinds that lie flat in one list: none is taken for a part of another."""

from __future__ import annotations

import ast
import inspect
import logging
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from dasfprof.recording.guard import HookGuard
from dasfprof.recording.notes import scheduler_notes, task_notes
from dasfprof.recording.notes.layout import Fields, FlatNotes, NoteKind, NoteLayout
from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
from dasfprof.schema.declaration import Schema

PAIR = NoteKind(
    Schema("I", "Pair", (("timestamp", "float"),), (("double", "int"),)),
    ("timestamp", "number", "spare"),
)
ONE = NoteKind(Schema("I", "One", (("timestamp", "float"),), ()))
LAYOUT = NoteLayout(PAIR, ONE)


class CountingGuard(HookGuard):
    """Counts what it is told."""

    count = 0

    def caught(self, where: str) -> None:
        self.count += 1
        super().caught(where)


def doubled(fields: Fields) -> dict[str, Any]:
    return {**fields, "double": [2 * int(number) for number in fields["number"]]}


def notes_of(guard: HookGuard) -> FlatNotes:
    return FlatNotes(LAYOUT, guard, {PAIR: doubled})


def folded(notes: list[Any], guard: HookGuard | None = None) -> list[tuple[str, Any, list[int]]]:
    rows = notes_of(guard or HookGuard()).fold(notes)
    return [(schema.name, list(given.columns), list(at)) for schema, given, at in rows if given]


def pair(number: Any) -> list[Any]:
    return [*PAIR.note(float(number) if type(number) is int else 0.0, number, None)]


def one(time: float) -> list[Any]:
    return [*ONE.note(time)]


def test_rows_of_each_kind_keep_their_places() -> None:
    notes = [*pair(0), *one(10.0), *pair(1), *pair(2), *one(11.0)]
    assert folded(notes) == [
        ("Pair", [[0.0, 1.0, 2.0], [0, 2, 4]], [0, 2, 3]),
        ("One", [[10.0, 11.0]], [1, 4]),
    ]
    assert folded(one(10.0)) == [("One", [[10.0]], [0])]
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


# --- other widths and kinds -----------------------------------------------------------------------


def wide(number: int) -> list[Any]:
    return [*pair(number), "one too many"]


def narrow(number: int) -> list[Any]:
    return pair(number)[:-1]


def of_no_kind(number: int) -> list[Any]:
    return ["Pair", *pair(number)[1:]]


def of_another_layout(number: int) -> list[Any]:
    return [NoteKind(PAIR.schema), *pair(number)[1:]]


@pytest.mark.parametrize("make", [wide, narrow, of_another_layout])
@pytest.mark.parametrize("bad", range(5))
def test_a_note_of_another_width_or_kind_costs_itself_and_is_counted(
    make: Callable[[int], list[Any]], bad: int
) -> None:
    guard = CountingGuard()
    notes = [item for n in range(6) for item in (make(n) if n == bad else pair(n))]
    (given,) = folded(notes, guard)
    rest = [float(n) for n in range(6) if n != bad]
    assert given == ("Pair", [rest, [2 * n for n in rest]], list(range(5)))
    assert guard.count == 1


@pytest.mark.parametrize("bad", range(1, 5))
def test_items_without_a_mark_shift_no_later_note(bad: int) -> None:
    """They may be a part of the note before them, which is not believed then."""
    guard = CountingGuard()
    notes = [item for n in range(6) for item in (of_no_kind(n) if n == bad else pair(n))]
    (given,) = folded(notes, guard)
    rest = [float(n) for n in range(6) if n not in (bad - 1, bad)]
    assert given[1][0] == rest
    assert guard.count == 2


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_what_slices_cut_is_put_together(step: int) -> None:
    """The writer cuts by width: where notes have shifted, it cuts in the middle of them."""
    guard = CountingGuard()
    notes = [item for n in range(20) for item in (wide(n) if n == 3 else pair(n))]
    flat, width, times = notes_of(guard), LAYOUT.width, []
    whole = len(notes) // width * width
    for at in range(0, whole, step * width):
        for _, rows, _ in flat.fold(notes[at : min(at + step * width, whole)]):
            times += rows.columns[0]  # type: ignore[union-attr]
    assert guard.count == 1
    # That one is believed where a slice ends behind its last item but one.
    assert [time for time in times if time != 3.0] == [float(n) for n in range(19) if n != 3]
    assert list(flat.finish(notes[whole:])) == []
    assert guard.count == 2  # the last, which no slice has whole


def test_a_note_is_made_of_as_many_facts_as_it_has_fields() -> None:
    assert ONE.note(1.0) == (ONE, 1.0, None, None)
    for facts in ((), (1.0, 2)):
        with pytest.raises(TypeError, match=rf"'One'> has 1 fields, got {len(facts)}"):
            ONE.note(*facts)
    with pytest.raises(ValueError, match="a field is declared twice"):
        NoteKind(PAIR.schema, ("timestamp", "timestamp"))


# --- the layouts of the plugins -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hook", "kind", "layout"),
    [
        (WorkerTaskPlugin._note_run, task_notes.RUN, task_notes.WORKER_NOTES),
        (SchedulerTaskPlugin._task_run, scheduler_notes.RUN, scheduler_notes.SCHEDULER_NOTES),
    ],
)
def test_hooks_write_the_fields_in_the_order_of_their_declaration(
    hook: Any, kind: NoteKind, layout: NoteLayout
) -> None:
    """Each item is a variable with the field's name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(hook)))
    (names,) = (
        [getattr(item, "id", None) for item in node.elts]
        for node in ast.walk(tree)
        if isinstance(node, ast.Tuple) and getattr(node.elts[0], "id", None) == "RUN"
    )
    assert tuple(names) == ("RUN", *kind.fields)
    assert len(names) == layout.width


@pytest.mark.parametrize(
    "notes",
    [
        task_notes.TaskNotes(HookGuard(), {})._notes,
        scheduler_notes.scheduler_notes(HookGuard()),
    ],
)
def test_all_columns_of_all_schemas_are_made(notes: FlatNotes) -> None:
    for kind in notes._layout.kinds:
        facts = dict.fromkeys(kind.fields)
        facts |= {"timestamp": 1.0, "done": 1.0, "now": 1.0, "priority": (0, 1, 2), "key": "x-1"}
        note = kind.note(*(facts[name] for name in kind.fields))
        ((schema, rows, _),) = notes.fold([*note])
        assert len(rows) == 1
        assert len(rows.columns) == len(schema.codecs)  # type: ignore[union-attr]
