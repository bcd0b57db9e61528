"""Notes of several kinds that lie flat in one list."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dasfprof.recording.flat_notes import FlatNotes, padded
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.declaration import Schema

PAIR = Schema("I", "Pair", (("timestamp", "float"),), (("number", "int"),))
ONE = Schema("I", "One", (("timestamp", "float"),), ())
WIDTH = 4


def doubled(times: list[float], numbers: list[Any], _: list[Any]) -> list[list[Any]]:
    return [times, [2 * int(number) for number in numbers]]


def folded(notes: list[Any]) -> list[tuple[str, list[Any], list[int]]]:
    kinds: dict[str, Any] = {"pair": (PAIR, doubled), "one": (ONE, None)}
    rows = FlatNotes(WIDTH, HookGuard(), kinds).fold(notes)
    return [(schema.name, list(given.columns), list(at)) for schema, given, at in rows if given]


def test_rows_of_each_kind_keep_their_places() -> None:
    pairs = [padded(WIDTH, "pair", float(number), number) for number in range(3)]
    ones = [padded(WIDTH, "one", 10.0), padded(WIDTH, "one", 11.0)]
    notes = [*pairs[0], *ones[0], *pairs[1], *pairs[2], *ones[1]]
    assert folded(notes) == [
        ("Pair", [[0.0, 1.0, 2.0], [0, 2, 4]], [0, 2, 3]),
        ("One", [[10.0, 11.0]], [1, 4]),
    ]
    assert folded([*ones[0]]) == [("One", [[10.0]], [0])]
    assert folded([]) == []


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("bad", [0, 1, 4, 7])
def test_a_note_that_cannot_be_folded_costs_itself(
    caplog: pytest.LogCaptureFixture, count: int, bad: int
) -> None:
    caplog.set_level(logging.WARNING, "dasfprof")
    numbers: list[Any] = ["bad" if number == bad else number for number in range(count)]
    notes = [item for number in numbers for item in padded(WIDTH, "pair", 0.0, number)]
    good = [number for number in numbers if number != "bad"]
    given = folded(notes)
    assert [columns[1] for _, columns, _ in given] == ([[2 * n for n in good]] if good else [])
    assert len(caplog.records) == (bad < count)
