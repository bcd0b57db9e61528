"""Each event kind is declared once, in words that encoders, tables and readers understand."""

from __future__ import annotations

from typing import get_args

import pytest

from dasfprof.database.encoders import encoder
from dasfprof.schema import KINDS
from dasfprof.schema.declaration import Codec, EventKind, Kind, event_kind
from dasfprof.schema.events import EVENT_CLASSES


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_declaration_is_whole(kind: EventKind) -> None:
    names = [column.name for column in kind.columns]
    assert len(names) == len(set(names))
    assert kind.about.endswith(".")
    assert kind.recorder
    assert kind.args == tuple((column.name, column.codec) for column in kind.columns)
    assert {name for name, _ in kind.fields} <= set(EVENT_CLASSES[kind.phase].FIELDS)
    for column in kind.columns:
        assert column.about
        assert column.codec in get_args(Codec)
        assert column.kind in get_args(Kind)
        assert encoder(column.codec)


def test_a_line_may_go_on_and_a_minus_keeps_a_column_out_of_tables() -> None:
    kind = event_kind(
        "Made",
        "For the test.",
        recorder="Nobody",
        columns="""
key       key   key   the key
-hidden   int   count in no
    table
cause     key   stimulus what caused it
""",
    )
    assert kind.forms() == {"key": "key"}
    assert kind.forms(stimuli=True) == {"cause": "key"}
    assert kind.columns[1].about == "in no table"
    assert kind.args == (("key", "key"), ("hidden", "int"), ("cause", "key"))
