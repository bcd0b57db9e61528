"""Each kind of event is declared once, in a form that encoders, tables and readers understand."""

from typing import get_args

import numpy as np
import pytest

from dasfprof.analysis.trace.columns import FactColumns
from dasfprof.analysis.trace.keys import KeyCollector
from dasfprof.database.blocks import Batch
from dasfprof.database.columns import CODECS, Column, NumberColumn
from dasfprof.schema import KINDS
from dasfprof.schema.events import EVENT_CLASSES, KINDS_OF_VALUES, Codec, EventKind, event_kind


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
        assert column.kind in KINDS_OF_VALUES
        assert CODECS[column.codec]()


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
load      float number of [name, part] [# of Loads | Loads]
""",
    )
    assert kind.forms() == {"key": "key", "load": "float"}
    assert kind.forms(stimuli=True) == {"cause": "key"}
    assert kind.columns[1].about == "in no table"
    assert kind.args == (("key", "key"), ("hidden", "int"), ("cause", "key"), ("load", "float"))
    load = kind.columns[-1]
    assert (load.about, load.title, load.chart) == ("of [name, part]", "# of Loads", "Loads")


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_time_that_no_clock_tells_is_unknown(kind: EventKind) -> None:
    """Other large numbers, such as bytes since boot, may be valid."""
    names = [name for name, form in kind.forms().items() if form in ("time", "float")]
    facts = FactColumns(KeyCollector(), {name: kind.forms()[name] for name in names})
    columns: dict[str, Column] = {name: NumberColumn(np.array([1e15])) for name in names}
    one = np.arange(1)
    facts.add(Batch(kind.phase, kind.name, 1, one, {}, columns), one)
    found = facts.columns(np.empty(0, dtype=np.int32))
    times = {column.name for column in kind.columns if column.kind == "time"}
    assert {name for name in names if np.isnan(found[name][0])} == times & set(names)
