"""Recorded events are read back unchanged and in order, and other files are not touched."""

import collections
import datetime
import enum
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import wait_until
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from dasfprof.database import EventDatabase, EventProfiler, FileDatabase, MultiEventDatabase
from dasfprof.errors import InvalidArgumentError, ReadOnlyError
from dasfprof.schema.events import (
    CompleteEvent,
    DurationBeginEvent,
    DurationEndEvent,
    Event,
    InstantEvent,
)


def same(one: Any, other: Any) -> bool:
    """Return whether values and types are equal at all depths. NaN equals NaN, and -0.0 not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or (one == other and math.copysign(1, one) == math.copysign(1, other))
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same([*one], [*other]) and same([*one.values()], [*other.values()])
    if isinstance(one, Event):
        names = ("name", "phase", *one.FIELDS, "args")
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)


any_text = st.text(st.characters(exclude_categories=()), max_size=20)  # including lone surrogates
zones = st.none() | st.just(datetime.timezone(datetime.timedelta(1, 1) / 2))
any_number = st.integers() | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False)
any_time = st.datetimes(timezones=zones) | st.dates() | st.timedeltas()
hashable = st.recursive(
    st.none() | st.booleans() | any_number | any_text | st.binary(max_size=20) | any_time,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
any_value = st.recursive(
    hashable | st.floats() | st.sets(hashable, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(hashable, inner, max_size=4)
    ),
    max_leaves=10,
)
#: Names of args, some of which the format treats specially.
args = st.dictionaries(
    st.sampled_from(["key", "dependencies", "shape"]) | any_text, any_value, max_size=4
)
seconds = st.floats() | st.integers() | st.floats(1.6e9, 1.8e9)
durations = st.floats(min_value=0.0) | st.integers(min_value=0)
places = {"process_id": hashable, "thread_id": hashable, "args": args}
phases = st.just("R") | any_text
any_event: st.SearchStrategy[Event] = st.one_of(
    st.builds(InstantEvent, any_text, seconds, scope=st.sampled_from("gpt"), **places),
    st.builds(InstantEvent, any_text, seconds, phase=phases, **places),
    st.builds(CompleteEvent, any_text, seconds, durations, **places),
    st.builds(DurationBeginEvent, any_text, seconds, **places),
    st.builds(DurationEndEvent, any_text, seconds, phase=phases, **places),
)


def written(path: Path, events: Iterable[Event]) -> FileDatabase:
    """Record events into a new file, and close it."""
    with FileDatabase(path) as database:
        for event in events:
            database.record(event)
    return database


def assert_come_back(recorded: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = written(Path(directory, "t.msgpack"), recorded)
        assert same([*FileDatabase(database.path).get_traces()], recorded)


some_events = st.lists(any_event, min_size=1, max_size=12)


@examples(20, long=3000)
@given(some_events, st.integers(1, 3))
def test_any_events_come_back(events: list[Event], times: int) -> None:
    assert_come_back(events * times)


keys = st.one_of(
    any_text,
    st.from_regex(r"[a-z]{1,3}-[0-9a-f]{32}", fullmatch=True),
    st.from_regex(r"[a-z-]{0,3}-[0-9a-fA-F]{31,33}", fullmatch=True),
    st.builds("{}-{}".format, any_text, st.uuids()),
    st.builds("{}-{}-{}".format, any_text, st.uuids(), st.integers(-1, 2**33)),
    st.builds("{}-{!r}".format, any_text, st.floats(2**30 - 1, 2**31 + 1)),
    st.from_regex(r"[a-z]-0?[0-9]{1,11}\.?[0-9]{0,3}", fullmatch=True),
    st.tuples(any_text),
    st.tuples(any_text, st.integers(0, 2**33), st.integers(-1, 9)).map(str),
    st.from_regex(r"\('[a-z'\\ -]{0,4}(',|')( ?0?[0-9],?){0,6}\)", fullmatch=True),
    st.lists(st.integers(-1, 2**32) | st.booleans() | any_text, max_size=6).map(
        lambda rest: ("name", *rest)
    ),
    hashable,
)


@examples(34)
@given(st.lists(keys, min_size=1, max_size=8))
def test_any_keys_come_back(some_keys: list[Any]) -> None:
    assert_come_back(
        [
            InstantEvent("task", 1.0, args={"key": key, "dependencies": some_keys[:place]})
            for place, key in enumerate(some_keys)
        ]
    )


@pytest.mark.parametrize(
    "column",
    [
        [0.0, -0.0],
        [-0.0, -0.0],
        [math.nan, math.nan],
        [math.nan, 1.0, math.inf],
        [-math.inf, math.inf, 1e308, -1e308],
        [5e-324, 1.7e9, 2.0**-22],
        [1.7e9, 1.7e9 + 2**-22, 1.7e9 + 1023.75],
        [2**63 - 3, 2**63 - 2, 2**63 - 1],
        [-(2**63), 1 - 2**63, 2 - 2**63],
        [1 - 2**63, -(2**63), 2**63 - 1],
        [2**63 - 9, 2**63 - 1, 2**63 - 2],
        [-(2**63), 0, 2**63 - 1],
        [2**63, 1],
        [2**64, -(2**64), 1 << 20_000],
        [1, 1.0, True, 0, 0.0, False, -0.0, None, "1"],
        [(1, 2), [1, 2], (1, (2,)), {1: 2}, {}, []],
        ["x" * 2**20, "y" * 2**20, "x" * 2**20],
        [b"x" * 2**20, bytearray(b"y").hex()],
        ["\udcff", "\ud800\udc00", "\x00"],
    ],
    ids=lambda column: (
        str(column[-1])[:20] if type(column[-1]) is not int else f"{column[-1]:#x}"[:20]
    ),
)
def test_hard_columns_come_back(column: list[Any]) -> None:
    assert_come_back([InstantEvent("n", 1.0, args={"x": item}) for item in column])


def test_numpy_scalars_and_derived_classes_come_back_as_equal_plain_values(tmp_path: Path) -> None:
    class Word(str):
        pass

    class Flavour(str, enum.Enum):
        UP = "up"

    class Level(enum.IntEnum):
        HIGH = 2**70

    Point = collections.namedtuple("Point", "x y")
    items = {
        "float64": np.float64(0.1),
        "float32": np.float32(0.1),
        "int8": np.int8(-3),
        "uint64": np.uint64(2**64 - 1),
        "complex": np.complex64(1 + 2j),
        "bool": np.True_,
        "text": np.str_("\udc80"),
        "bytes": np.bytes_(b"x"),
        "word": Word("w"),
        "enum": Flavour.UP,
        "big enum": Level.HIGH,
        "tuple": Point(1, Point(2, 3)),
        "dict": collections.OrderedDict(a=Point(0, 0)),
        "counter": collections.Counter("aab"),
        "bytearray": bytearray(b"x"),
        "key": ("x", np.int64(3)),
        "dependencies": [("x", np.int64(3), np.uint8(1))],
    }
    event = CompleteEvent("n", np.float64(1.5), np.int32(2), process_id=Word("h"), args=items)
    first, second = written(tmp_path / "t.msgpack", [event] * 2).get_traces()
    assert first == second == event
    plain = {float, int, complex, bool, str, bytes, tuple, dict, list}
    assert {*map(type, first.args.values())} <= plain
    assert (type(first.timestamp), type(first.process_id)) == (float, str)


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class HashableList(list):  # type: ignore[type-arg]
    __hash__ = object.__hash__  # type: ignore[assignment]


def test_a_value_of_no_plain_kind_becomes_its_repr(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = [deep]
    items = {
        "class": Path("/x"),
        "moment": np.datetime64("2024-01-01T00:00:00.000000001"),
        "array": np.arange(3),
        "endless": endless,
        "list key": {HashableList("a"): 1},
        "unspeakable": Unspeakable(),
        "deep": deep,
        "inside": [Unspeakable(), (Path("/y"),)],
        "key": Unspeakable(),
    }
    events = InstantEvent("odd", 1.0, args=items), InstantEvent("good", 1.0, args={"a": 1})
    odd, good = written(tmp_path / "t.msgpack", events).get_traces()
    assert odd.args == {
        "class": repr(Path("/x")),
        "moment": repr(items["moment"]),
        "array": "array([0, 1, 2])",
        "endless": "[[...]]",
        "list key": "{['a']: 1}",
        "unspeakable": "<Unspeakable object>",
        "deep": "<list object>",
        "inside": ["<Unspeakable object>", (repr(Path("/y")),)],
        "key": "<Unspeakable object>",
    }
    assert good.args == {"a": 1}


@pytest.mark.parametrize("kind", [list, tuple])
def test_deep_values_come_back_or_become_text(
    tmp_path: Path, kind: Callable[[list[Any]], Any]
) -> None:
    """msgpack's limit depends on its version. Blocks are read on both sides of it."""
    deep, recorded = kind([]), []
    for depth in range(1100):
        deep = kind([deep])
        if depth % 100 == 0 or depth in range(495, 515) or depth in range(1000, 1030):
            recorded.append(deep)
    all_args: list[Any] = [{"x": value, "key": (value,)} for value in recorded]
    instants = [InstantEvent("deep", 1.0, args=args) for args in all_args]
    events = [*written(tmp_path / "t.msgpack", instants).get_traces()]
    as_text = [type(event.args["x"]) is str for event in events]
    assert as_text == sorted(as_text)
    assert not any(as_text[:5])
    assert as_text[-1]
    assert [event.args for event in events[:5]] == all_args[:5]


def test_the_order_is_kept_across_kinds_and_drains(tmp_path: Path) -> None:
    database = FileDatabase(tmp_path / "t.msgpack", 5000, flush_interval=0.01)
    recorded: list[Event] = []
    for number in range(23_000):
        args = {"number": number, "key": ("x", number, 0)}
        if number % 3 == 0:
            event: Event = CompleteEvent("a", number, 0.5, args=args)
        elif number % 7 == 0:
            event = InstantEvent("b", float(number), args=args)
        else:
            event = InstantEvent(f"c{number % 5}", number, args={})
        recorded.append(event)
        database.record(event)
        if number in (1000, 1001, 9000):
            database.commit()
    assert same([*database.get_traces()], recorded)
    database.close()
    reread = EventProfiler(database.path)
    assert same([*reread.get_traces()], recorded)
    assert sum(batch.rows for batch in reread.batches()) == len(recorded)


@pytest.mark.parametrize(("threshold", "interval"), [(5000, 0.02), (10, 1e300)])
def test_the_interval_and_the_threshold_flush(
    tmp_path: Path, threshold: int, interval: float
) -> None:
    with FileDatabase(tmp_path / "t.msgpack", threshold, flush_interval=interval) as database:
        for _ in range(9):
            database.record(InstantEvent("n", 1.0))
        assert threshold > 10 or database.path.stat().st_size == 0
        database.record(InstantEvent("n", 1.0))
        wait_until(lambda: _events_in(database.path) == 10)


def _events_in(path: Path) -> int:
    return len([*FileDatabase(path).get_traces()])


def test_close_twice_is_once_and_nothing_can_be_recorded_after(tmp_path: Path) -> None:
    database = FileDatabase(tmp_path / "t.msgpack")
    database.record(InstantEvent("n", 1.0))
    database.close()
    before = database.path.read_bytes()
    database.close()
    with pytest.raises(ReadOnlyError, match=r"t\.msgpack.* was closed\. Record into a new file"):
        database.record(InstantEvent("late", 2.0))
    database.commit()
    assert database.path.read_bytes() == before
    assert [event.name for event in database.get_traces()] == ["n"]


def test_an_existing_file_is_read_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "t.msgpack"
    database = written(path, [InstantEvent("n", 1.0)])
    before = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(ReadOnlyError):
        FileDatabase(path).record(InstantEvent("n", 1.0))
    for reader in (EventProfiler(path), EventProfiler(database=database)):
        with pytest.raises(ReadOnlyError):
            reader.record_instant_event("n", 1.0)
        assert [event.name for event in reader.get_traces()] == ["n"]
        reader.commit()
        reader.close()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert os.listdir(tmp_path) == ["t.msgpack"]


def test_the_file_stays_where_it_is_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    database = FileDatabase("here/t.msgpack")
    assert repr(database) == "FileDatabase at here/t.msgpack"
    database.record(InstantEvent("n", 1.0))
    database.commit()
    monkeypatch.chdir(tmp_path / "elsewhere")
    database.record(InstantEvent("n", 2.0))
    database.close()
    assert len([*database.get_traces()]) == 2
    assert os.listdir(tmp_path / "elsewhere") == []


class Squares(EventDatabase):
    def get_traces(self) -> Iterator[Event]:
        for number in range(3):
            yield InstantEvent("square", number, args={"value": number**2})
            yield CompleteEvent("other", number, 1.0, args={"value": str(number)})


def test_a_generator_is_a_database(tmp_path: Path) -> None:
    squares = Squares()
    database = written(tmp_path / "t.msgpack", squares.get_traces())
    both = MultiEventDatabase([squares, EventProfiler(database.path)])
    assert [*both] == [*squares.get_traces()] * 2
    batches = [*both.batches()]
    assert [source for source, _ in batches] == [squares] * 2 + [both.databases[1]] * 2
    for place in (0, 2):
        square, other = batches[place][1], batches[place + 1][1]
        assert (square.phase, square.name, square.rows) == ("I", "square", 3)
        assert square.args["value"].to_list() == [0, 1, 4]
        assert square.sequence.tolist() == [0, 2, 4]
        assert other.args["value"].to_list() == ["0", "1", "2"]
        assert other.fields["duration"].to_list() == [1.0] * 3
    with pytest.raises(ReadOnlyError):
        squares.record(InstantEvent("n", 1.0))


@pytest.mark.parametrize(
    "options",
    [
        *({"commit_threshold": value} for value in (0, -5, "x", 2.5, True)),
        *({"flush_interval": value} for value in (0, -1.0, math.nan, "1s")),
        *({"max_pending": None}, {"commit_threshold": 10, "max_pending": 9}),
    ],
    ids=repr,
)
def test_senseless_limits_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="expected a positive integer"):
        FileDatabase(tmp_path / "t.msgpack", **options)


def test_the_profiler_records_each_class_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    profiler = EventProfiler("t.msgpack", {"commit_threshold": 2})
    assert repr(profiler) == "EventProfiler(database=FileDatabase at t.msgpack)"
    profiler.record_complete_event("a", 1.0, 2.0, process_id="h", args={"x": 1})
    profiler.record_instant_event("b", 3.0, scope="t")
    profiler.record_duration_begin_event("c", 4.0, thread_id="w")
    profiler.record_duration_end_event("c", 5.0, thread_id="w")
    profiler.commit()
    assert [*profiler.get_traces()] == [
        CompleteEvent("a", 1.0, 2.0, process_id="h", args={"x": 1}),
        InstantEvent("b", 3.0, scope="t"),
        DurationBeginEvent("c", 4.0, thread_id="w"),
        DurationEndEvent("c", 5.0, thread_id="w"),
    ]
    profiler.close()
    unnamed = EventProfiler()
    unnamed.record_instant_event("b", 3.0)
    unnamed.close()
    assert len([*tmp_path.glob("traces-????????.msgpack")]) == 1
    with pytest.raises(InvalidArgumentError, match="Pass only one of them"):
        EventProfiler("t.msgpack", database=profiler.database)
