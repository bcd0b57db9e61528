"""Notes in a flat list become rows, and an unreadable note does not affect others."""

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


@pytest.mark.parametrize("count", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("bad", [0, 1, 4, 7])
def test_rows_of_good_and_bad_notes(caplog: pytest.LogCaptureFixture, count: int, bad: int) -> None:
    caplog.set_level(logging.WARNING, "dasfprof")
    numbers: list[Any] = ["bad" if number == bad else number for number in range(count)]
    rows = folded([item for number in numbers for item in pair(number)])
    good = [number for number in numbers if number != "bad"]
    expected = ("Pair", [[*map(float, good)], [2 * n for n in good]], [*range(len(good))])
    assert rows == ([expected] if good else [])
    assert len(caplog.records) == (bad < count)
