"""Notes that lie flat in one list become rows; one that cannot be read costs no other."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dasfprof.recording.guard import HookGuard
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
