"""Damaged files: all intact blocks are returned, damage is reported, and there are no errors."""

import contextlib
import gzip
import itertools
import random
import struct
import tempfile
import time
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trace_by_format
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from trace_by_format import MARKER, frame_of, frames_of, head_of, raw_deflated

from dasfprof.database import FileDatabase, MultiEventDatabase, find_runs, open_run
from dasfprof.database.frames import deflate, inflate
from dasfprof.database.reader import TraceFile
from dasfprof.errors import DasfprofError, NotATraceError
from dasfprof.schema.events import CompleteEvent, Event, InstantEvent

BLOCKS: list[list[Event]] = [
    [CompleteEvent("a", 1.7e9 + row, 0.5, args={"key": ("x", row, 1)}) for row in range(3)],
    [InstantEvent("b", 1.7e9 + row, args={"value": [row], "text": "t"}) for row in range(4)],
    [CompleteEvent("a", 1.7e9, 0.5, args={"key": "k", "dependencies": [("x", 1), "y"]})],
    [InstantEvent("c", float(row), args={"n": row * row}) for row in range(5)],
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a header, a frame for each of BLOCKS, and an end."""
    database = FileDatabase(tmp_path_factory.mktemp("whole") / "t.msgpack", header={"run": "r"})
    for block in BLOCKS:
        for event in block:
            database.record(event)
        database.commit()
    database.close()
    return database.path.read_bytes()


def read(path: Path) -> tuple[TraceFile, list[Event]]:
    trace = TraceFile(path)
    return trace, [event for batch in trace.batches() for _, event in batch.events()]


def events_in(frames: list[int]) -> list[Event]:
    """Return the events of the frames with these numbers: 0 is the header, and 5 is the end."""
    return [event for frame in frames if 1 <= frame <= 4 for event in BLOCKS[frame - 1]]


def test_a_file_cut_at_any_byte(tmp_path: Path, whole: bytes) -> None:
    ends = list(itertools.accumulate(map(len, frames_of(whole))))
    assert len(ends) == 6
    path = tmp_path / "t.msgpack"
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        intact = [number for number, end in enumerate(ends) if end <= length]
        trace, events = read(path)
        assert events == events_in(intact)
        assert trace.events == len(events)
        assert trace.damage.cut_bytes == length - (ends[intact[-1]] if intact else 0)
        assert (trace.damage.corrupt_bytes, trace.damage.unreadable) == (0, [])
        assert (trace.header != {}) == (0 in intact)
        assert (trace.end is not None) == (5 in intact)
        if length % 10 == 0:
            assert [*FileDatabase(path).get_traces()] == events


def test_any_byte_changed(tmp_path: Path, whole: bytes) -> None:
    frames = frames_of(whole)
    path = tmp_path / "t.msgpack"
    position = 0
    for damaged, frame in enumerate(frames):
        rest = events_in([number for number in range(6) if number != damaged])
        for offset in range(len(frame)):
            changed = bytearray(whole)
            changed[position + offset] ^= 1 << offset % 8
            path.write_bytes(changed)
            trace, events = read(path)
            assert events == rest
            assert trace.damage.corrupt_bytes + trace.damage.cut_bytes == len(frame)
            assert trace.damage
            if offset % 10 == 0:
                assert [*open_run(path)] == rest
        position += len(frame)


def test_many_random_changes(tmp_path: Path, whole: bytes) -> None:
    draw = random.Random(1)
    path = tmp_path / "t.msgpack"
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(draw.choice((1, 2, 5, 50))):
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        expected = trace_by_format.read(bytes(changed)).events
        if not trace_by_format.read(bytes(changed)).frames:
            continue
        _, events = read(path)
        assert [(event.name, event.args) for event in events] == [
            (name, args) for _, _, name, _, args in expected
        ]


def test_frames_in_any_order_are_all_read(tmp_path: Path, whole: bytes) -> None:
    frames = frames_of(whole)
    path = tmp_path / "t.msgpack"
    for order in itertools.islice(itertools.permutations(range(6)), 0, None, 7):
        path.write_bytes(b"".join(frames[number] for number in order))
        trace, events = read(path)
        assert events == events_in([*order])
        assert not trace.damage
        assert trace.header["run"] == "r"
        assert trace.end is not None
        ordered = [*FileDatabase(path).get_traces()]
        assert sorted(map(repr, ordered)) == sorted(map(repr, events))


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00",
        b"junk" * 1000,
        MARKER,
        MARKER * 50,
        MARKER[:-1],
        b"\xc1",
        frame_of(b"")[:-1],
        MARKER + struct.pack("<III", 2**32 - 1, 0, 0),
        # Valid heads that claim more bytes than the file has.
        *(head_of(100, 0), head_of(2**32 - 1, 0)),
    ],
    ids=lambda junk: f"{junk[:12].hex()}x{len(junk)}",
)
def test_junk_between_frames(tmp_path: Path, whole: bytes, junk: bytes) -> None:
    frames = frames_of(whole)
    path = tmp_path / "t.msgpack"
    for place in range(7):
        path.write_bytes(b"".join([*frames[:place], junk, *frames[place:]]))
        trace, events = read(path)
        assert events == events_in([*range(6)])
        assert trace.damage.corrupt_bytes + trace.damage.cut_bytes == len(junk)
        assert (trace.header["run"], trace.events) == ("r", 13)
        assert [*open_run(path)] == events


def test_a_frame_that_lost_bytes_takes_no_other_with_it(tmp_path: Path, whole: bytes) -> None:
    frames = frames_of(whole)
    path = tmp_path / "t.msgpack"
    for lost in range(20, len(frames[2])):
        path.write_bytes(b"".join([*frames[:2], frames[2][:lost], *frames[3:]]))
        trace, events = read(path)
        assert events == events_in([0, 1, 3, 4, 5])
        assert trace.damage.corrupt_bytes == lost


def test_a_block_inside_of_a_value_is_data(tmp_path: Path, whole: bytes) -> None:
    """Bytes that look like a frame are only read as one if the enclosing frame is damaged."""
    database = FileDatabase(tmp_path / "t.msgpack")
    database.record(InstantEvent("holds", 1.0, args={"file": whole}))
    database.close()
    (event,) = database.get_traces()
    assert event.args["file"] == whole


def test_what_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.msgpack"
    for content in (b"a text, at length", bytes(1000), msgpack.packb([1, 2, 3])):
        path.write_bytes(content)
        with pytest.raises(NotATraceError, match=r"neither a dasfprof nor a DASF trace"):
            read(path)
        with pytest.raises(NotATraceError, match=r"neither a dasfprof nor a DASF trace"):
            open_run(path)


def column_of(values: list[int], dtype: str = "u4") -> list[Any]:
    code = {"u1": "B", "u4": "I", "i8": "q", "u8": "Q", "f8": "d", "f4": "f"}[dtype]
    return ["n", dtype, 0, 1, struct.pack(f"<{len(values)}{code}", *values)]


def block(rows: Any = 2, **changes: Any) -> dict[str, Any]:
    good = {
        "kind": "events",
        "phase": "I",
        "name": "n",
        "rows": rows,
        "clock": [1.0, 1.0],
        "dropped": 0,
        "errors": 0,
        "sequence": ["a", 0, 1],
        "fields": {"timestamp": ["c", 1.0]},
        "args": {},
    }
    return {**good, **changes}


def with_column(column: Any, rows: int = 2) -> dict[str, Any]:
    return block(rows, args={"x": column}, padding=bytes(4 * rows if rows < 100 else 0))


KEY = ["k", b"\x00", ["key"], ["c", 0], *[["c", 0]] * 4]
LIES: dict[str, Any] = {
    "rows 2^40": block(2**40),
    "rows 2^64-1": block(2**64 - 1),
    "rows -1": block(-1),
    "rows text": block("5" * 100),
    "rows nil": block(None),
    "rows 1.5": block(1.5),
    "rows true": block(True),
    "rows inf": block(float("inf")),
    "no rows": {"kind": "events"},
    "more rows than bytes": block(5000),
    "columns without end": block(
        rows=10_000, args={f"{number}": ["a", 0, 1] for number in range(10_000)}
    ),
    "constants without end": block(
        rows=30_000, args={f"{number}": ["c", 0] for number in range(10_000)}
    ),
    "keys without end": block(rows=9000, args={f"{number}": KEY for number in range(1000)}),
    "lists without end": block(
        rows=10, args={f"{number}": ["l", ["c", 2000], KEY] for number in range(1000)}
    ),
    "phase": block(phase="Z"),
    "phase list": block(phase=["I"]),
    "name": block(name=5),
    "names that are numbers": block(fields={"timestamp": ["c", 1.0], "name": ["c", 1]}),
    "names that hold a number": block(
        fields={"timestamp": ["c", 1.0], "name": ["d", ["a", 0, 1], ["n", 5]]}
    ),
    "fields list": block(fields=[]),
    "args nil": block(args=None),
    "no timestamp": block(fields={}),
    "no duration": block(phase="X"),
    "sequence empty": block(sequence=[]),
    "sequence map": block(sequence={}),
    "sequence nil": block(sequence=["c", None]),
    "sequence floats": block(sequence=column_of([float("nan")] * 2, "f8")),  # type: ignore[list-item]
    "sequence keys": block(sequence=KEY),
    "sequence text": block(sequence="a"),
    "form": with_column(["z", 1]),
    "form nil": with_column(None),
    "form number": with_column(5),
    "form bytes": with_column(b"n"),
    "form list": with_column([["n"]]),
    "constant text": with_column(["c", "text"]),
    "constant list": with_column(["c", [1, 2]]),
    "constant 2^64-1": with_column(["c", 2**64 - 1]),
    "series text": with_column(["a", "1", 1]),
    "series beyond": with_column(["a", 2**63 - 1, 1]),
    "series far": with_column(["a", 0, 2**64 - 1]),
    "dtype object": with_column(["n", "O", 0, 1, bytes(16)]),
    "dtype void": with_column(["n", "V8", 0, 1, bytes(16)]),
    "dtype number": with_column(["n", 4, 0, 1, bytes(16)]),
    "dtype list": with_column(["n", ["u4"], 0, 1, bytes(8)]),
    "buffer short": with_column(["n", "u4", 0, 1, bytes(4)]),
    "buffer uneven": with_column(["n", "u4", 0, 1, bytes(7)]),
    "buffer text": with_column(["n", "u4", 0, 1, "12345678"]),
    "base text": with_column(["n", "u4", "0", 0.5, bytes(8)]),
    "base nil": with_column(["n", "u4", None, 1, bytes(8)]),
    "base 2^64-1": with_column(["n", "u1", 2**64 - 1, 1, bytes(2)]),
    "base at the edge": with_column(["n", "u1", 2**63 - 1, 1, b"\x00\x01"]),
    "optional floats scaled": with_column(["o", "f8", 0.0, 0.5, bytes(16)]),
    "codes beyond": with_column(["d", ["c", 1], ["only"]]),
    "codes negative": with_column(["d", ["a", 0, -1], ["only"]]),
    "codes floats": with_column(["d", column_of([0, 0], "f8"), ["only"]]),
    "codes nil": with_column(["d", ["c", None], ["only"]]),
    "entries text": with_column(["d", ["c", 0], "only"]),
    "entries none": with_column(["d", ["c", 0], []]),
    "key kind": with_column(["k", b"\x06", ["key"], ["c", 0], *[["c", 0]] * 4]),
    "key kind 13": with_column(["k", b"\x0d", ["key"], ["c", 0], *[["c", 0]] * 4]),
    "key kinds list": with_column(["k", [0], ["key"], ["c", 0], *[["c", 0]] * 4]),
    "key texts few": with_column(["k", b"\x00\x00", ["key"], ["c", 0], *[["c", 0]] * 4]),
    "key text bytes": with_column(["k", b"\x00", [b"key"], ["c", 0], *[["c", 0]] * 4]),
    "key packed text": with_column(["k", b"\x05", ["key"], ["c", 0], *[["c", 0]] * 4]),
    "key packed junk": with_column(["k", b"\x05", [b"\xc1"], ["c", 0], *[["c", 0]] * 4]),
    "key packed short": with_column(["k", b"\x05", [b"\x93"], ["c", 0], *[["c", 0]] * 4]),
    "key text nil": with_column(["k", b"\x00", [None], ["c", 0], *[["c", 0]] * 4]),
    "key words few": with_column(["k", b"\x00", ["key"], ["c", 0], ["c", 0]]),
    "key word negative": with_column(["k", b"\x08", ["key"], ["c", 0], *[["c", -1]] * 4]),
    "key word 2^32": with_column(["k", b"\x08", ["key"], ["c", 0], *[["c", 2**32]] * 4]),
    "key codes beyond": with_column(["k", b"\x00", ["key"], ["c", 1], *[["c", 0]] * 4]),
    "list lengths 2^32-1": with_column(["l", ["c", 2**32 - 1], KEY]),
    "list lengths 2^63-1": with_column(["l", ["c", 2**63 - 1], KEY]),
    "list lengths negative": with_column(["l", ["a", 1, -2], KEY]),
    "list lengths that wrap": with_column(
        ["l", column_of([5, 2**63 - 1, 2**63 - 1, 0, 5, 2], "i8"), KEY], rows=6
    ),
    "list lengths u8": with_column(["l", column_of([2**64 - 1, 3], "u8"), KEY]),
    "list of numbers": with_column(["l", ["c", 1], ["c", 1]]),
    "extension": with_column(["d", ["c", 0], [msgpack.ExtType(5, b"short")]]),
    "extension date": with_column(["d", ["c", 0], [msgpack.ExtType(7, b"\xff\xfe")]]),
    "extension span": with_column(
        ["d", ["c", 0], [msgpack.ExtType(8, struct.pack("<iii", 2**31 - 1, 0, 0))]]
    ),
    "set of lists": with_column(["d", ["c", 0], [[msgpack.ExtType(3, b""), [1]]]]),
    "map key list": with_column(["d", ["c", 0], [{msgpack.ExtType(99, b""): 1}], "rest"]),
}
#: False claims without effect: the values can be read.
HARMLESS = {"map key list"}

RAW_LIES: dict[str, bytes] = {
    "nothing": b"",
    "0xc1": b"\xc1",
    "list": b"\x91\x00",
    "number": b"\x05",
    "more than one": b"\x80\x80",
    "array of 2^32-1": b"\xdd\xff\xff\xff\xff",
    "map of 2^32-1": b"\xdf\xff\xff\xff\xff",
    "text of 2^32-1": b"\xdb\xff\xff\xff\xff",
    "extension of 2^32-1": b"\xc9\xff\xff\xff\xff\x01",
    "nested maps": b"\xdf\x00\x01\x00\x00\xa0" * 900 + bytes(130_000),
    "deep": b"\x91" * 100_000,
    "deep tuples": b"\x92\xc7\x00\x01" * 400 + b"\xc0",
    "key text": b"\x81\xa4kind\xa6ev\xff\xffts",
}


RANDOM = random.Random(3).randbytes
HONEST = raw_deflated(msgpack.packb(block(padding=RANDOM(100))))
DEFLATED = b"\xc1\x01"
BACKWARDS = trace_by_format.DICTIONARY[::-1]
DEFLATED_LIES = {
    "bomb": raw_deflated(msgpack.packb(block(padding=bytes(1 << 24)))),
    "bomb of constants": raw_deflated(msgpack.packb(block(rows=30_000, padding=bytes(60_000)))),
    "17 times its length": raw_deflated(msgpack.packb(block(padding=bytes(4000)))),
    "nothing deflated": b"",
    "nothing, deflated": raw_deflated(b""),
    "deflated, cut": HONEST[:-1],
    "deflated, cut short": HONEST[:9],
    "deflated, more behind": HONEST + b"\x00",
    "deflated twice over": HONEST + HONEST,
    "deflated junk": b"\xff" * 100,
    "deflated list": raw_deflated(b"\x91\x00"),
    "deflated lie": raw_deflated(msgpack.packb(block(2**40))),
    "deflated within": raw_deflated(DEFLATED + HONEST),
    "another dictionary": raw_deflated(msgpack.packb(block()), BACKWARDS),
    "zlib's head": zlib.compress(msgpack.packb(block())),
    "gzip's head": gzip.compress(msgpack.packb(block())),
}
RAW_LIES |= {name: DEFLATED + payload for name, payload in DEFLATED_LIES.items()}
RAW_LIES |= {"no dictionary": b"\xc1\x00" + HONEST, "dictionary 2": b"\xc1\x02" + HONEST}


@pytest.mark.parametrize("name", [*LIES, *RAW_LIES])
def test_a_block_that_lies_is_left_out(tmp_path: Path, whole: bytes, name: str) -> None:
    payload = msgpack.packb(LIES[name]) if name in LIES else RAW_LIES[name]
    frames = frames_of(whole)
    path = tmp_path / "t.msgpack"
    path.write_bytes(b"".join([*frames[:3], frame_of(payload), *frames[3:]]))

    tracemalloc.start()
    begin = time.thread_time()
    trace, events = read(path)
    seconds = time.thread_time() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    if name in HARMLESS:
        events = [event for event in events if event.name != "n"]
    else:
        assert len(trace.damage.unreadable) == 1
    assert events == events_in([*range(6)])
    assert trace.end is not None
    assert seconds < 10
    assert peak < 1_000_000 + 300 * len(payload)


def test_a_block_of_the_same_form_is_read(tmp_path: Path) -> None:
    """The base of the false blocks is valid."""
    path = tmp_path / "t.msgpack"
    good = [block(), with_column(KEY), with_column(["l", ["c", 3], KEY]), with_column(["c", None])]
    payloads = [*map(msgpack.packb, good), DEFLATED + HONEST]
    path.write_bytes(b"".join(map(frame_of, payloads)))
    trace, events = read(path)
    assert [event.args.get("x") for event in events] == [
        *[None, None, "key", "key", ["key"] * 3, ["key"] * 3, None, None, None, None]
    ]
    assert not trace.damage


def test_large_payloads_are_deflated_where_that_is_shorter() -> None:
    """A payload of zeros stays plain, because readers refuse more than 16 times its length."""
    noise = RANDOM(1 << 18)
    halves = noise + bytes(len(noise))
    assert len(halves) / 2 < len(deflate(halves)) < len(halves) / 2 + 5_000
    assert inflate(deflate(halves)) == halves
    assert deflate(noise) == noise
    assert deflate(bytes(1 << 18)) == bytes(1 << 18)


def test_a_payload_inflates_to_16_times_its_length_and_to_no_byte_more() -> None:
    noise = RANDOM(1000)

    def payload(zeros: int) -> bytes:
        return DEFLATED + raw_deflated(noise + bytes(zeros))

    # About every thousand zeros add a byte, so one number of zeros fits.
    zeros = next(n for n in range(14_500, 17_500) if len(noise) + n == 16 * len(payload(n)))
    assert len(inflate(payload(zeros))) == len(noise) + zeros
    assert len(payload(zeros + 1)) == len(payload(zeros))
    with pytest.raises(ValueError, match="inflates to more than"):
        inflate(payload(zeros + 1))


def test_any_byte_of_a_deflated_payload_changed_under_a_right_checksum(
    tmp_path: Path, whole: bytes
) -> None:
    """Its content may or may not be a block. The other blocks are read."""
    frames = frames_of(whole)
    payload = frames[1][20:]
    assert payload[:2] == DEFLATED
    path = tmp_path / "t.msgpack"
    for place in range(len(payload)):
        changed = bytearray(payload)
        changed[place] ^= 1 << place % 8
        path.write_bytes(b"".join([frames[0], frame_of(bytes(changed)), *frames[2:]]))
        trace, events = read(path)
        assert events[-10:] == events_in([2, 3, 4])
        assert trace.end is not None


def test_a_file_whose_payloads_are_not_deflated_is_read(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "t.msgpack"
    plain = [trace_by_format.inflate(frame[20:]) for frame in frames_of(whole)]
    assert sum(map(len, plain)) > len(whole)
    path.write_bytes(b"".join(map(frame_of, plain)))
    assert read(path)[1] == events_in([*range(6)])
    assert not read(path)[0].damage


@pytest.mark.parametrize(
    ("column", "lists"),
    [
        (["c", 1.5], 0),
        (["a", 10**9, 7], 0),
        (["d", ["c", 0], ["x"]], 0),
        (["k", b"\x0c", ["key"], ["c", 0], *[["c", 2**31]] * 4], 0),
        (["k", b"\x03", ["key"], ["c", 0], *[["c", 2**31]] * 4], 0),
        (["l", ["c", 1], KEY], 1),
    ],
    ids=lambda item: str(item)[:12],
)
def test_what_a_block_may_claim_is_bounded_by_its_length(
    tmp_path: Path, column: list[Any], lists: int
) -> None:
    """The maximum number of values of each form that a reader accepts takes at most this memory."""
    columns = {f"{number}": column for number in range(20)}
    length = 20_000
    rows = 2 * length // (2 + len(columns) * (1 + lists))
    payload = msgpack.packb(block(rows, args=columns))
    payload = msgpack.packb(block(rows, args=columns, padding=bytes(length - len(payload))))
    path = tmp_path / "t.msgpack"
    path.write_bytes(frame_of(payload))

    tracemalloc.start()
    (batch,) = TraceFile(path).batches()
    decoded = tracemalloc.get_traced_memory()[1]
    assert len(batch.events()) == rows
    as_events = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert decoded < 100 * len(payload)
    assert as_events < 800 * len(payload)


@pytest.mark.parametrize(
    "header",
    [
        {"run": 5, "run_uuid": [1], "run_created": "soon", "version": "x"},
        {"run": ["r"], "run_uuid": {}, "run_created": float("nan"), "created": None},
        {"run": "", "run_created": 10**18, "worker": 5, "dropped": "many", "errors": -5},
        {"run": "r", "dropped": 1.5, "errors": 2**64 - 1, 5: 6},
        {"run": "\udc80\n<b>\x1b[31m", "run_uuid": "\x00"},
    ],
    ids=repr,
)
def test_headers_that_lie(tmp_path: Path, whole: bytes, header: dict[Any, Any]) -> None:
    payload = msgpack.packb({"kind": "header", **header}, unicode_errors="surrogatepass")
    path = tmp_path / "t.msgpack"
    path.write_bytes(b"".join([frame_of(payload), *frames_of(whole)[1:]]))
    assert [*open_run(tmp_path)] == events_in([*range(6)])
    (run,) = find_runs(tmp_path)
    assert run.files == [path]
    assert run.created >= 0
    assert read(path)[0].dropped == 0


def test_markers_without_end(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "t.msgpack"
    path.write_bytes(MARKER * 200_000 + whole)
    trace, events = read(path)
    assert events == events_in([*range(6)])
    assert trace.damage.corrupt_bytes == len(MARKER) * 200_000


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.sampled_from([0, 1, -1, 2, 255, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 1e300])
    | st.floats()
    | st.sampled_from([*"canodklIXBEui", "u1", "u4", "i8", "f8", "rows", "timestamp", "phase"])
    | st.text(max_size=5)
    | st.binary(max_size=20)
    | st.builds(msgpack.ExtType, st.integers(0, 12), st.binary(max_size=12)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@st.composite
def changed_payloads(draw: st.DrawFn, payload: bytes) -> bytes:
    """Return a block with a random change anywhere."""
    value = msgpack.unpackb(trace_by_format.inflate(payload), strict_map_key=False)
    for _ in range(draw(st.integers(1, 3))):
        value = _change(draw, value, draw(st.integers(0, 6)))
    plain: bytes = msgpack.packb(value)
    return trace_by_format.deflated(plain) if draw(st.booleans()) else plain


def _change(draw: st.DrawFn, value: Any, depth: int) -> Any:
    if depth and isinstance(value, dict) and value:
        key = draw(st.sampled_from([*value]))
        return {**value, key: _change(draw, value[key], depth - 1)}
    if depth and isinstance(value, list) and value:
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _change(draw, value[place], depth - 1), *value[place + 1 :]]
    return draw(plain)


@st.composite
def changed_files(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return a file with changes within frames, and with removed, copied and replaced bytes."""
    frames = frames_of(whole)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(frames) - 1))
        if draw(st.booleans()):
            frames[place] = frame_of(draw(changed_payloads(frames[place][20:])))
        else:
            other = draw(st.integers(0, len(frames) - 1))
            frames[place], frames[other] = frames[other], frames[place]
    data = b"".join(frames)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        stop = start + draw(st.sampled_from([0, 1, 2, 8, 20, 100, 1000]))
        data = (
            data[:start]
            + draw(st.sampled_from([b"", data[stop:start:-1], MARKER]) | st.binary(max_size=10))
            + data[stop:]
        )
    return data


def assert_only_own_errors(data: bytes) -> None:
    """Assert that readers return events or raise one of the package's errors, for any bytes."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.msgpack")
        path.write_bytes(data)
        for attempt in (
            lambda: read(path),
            lambda: [*FileDatabase(path).get_traces()],
            lambda: [*MultiEventDatabase([path]).batches()],
            lambda: [*open_run(path)],
            lambda: [*open_run(directory).batches()],
            lambda: find_runs(Path(directory)),
        ):
            with contextlib.suppress(DasfprofError):
                attempt()
        assert [item.name for item in Path(directory).iterdir()] == ["t.msgpack"]
        assert path.read_bytes() == data


@examples(40, long=100_000)
@given(st.data())
def test_fuzzed_files_raise_only_own_errors(whole: bytes, data: st.DataObject) -> None:
    assert_only_own_errors(data.draw(changed_files(whole)))


@examples(27)
@given(st.binary(max_size=300))
@example(b"")
@example(MARKER)
def test_any_bytes_raise_only_own_errors(data: bytes) -> None:
    assert_only_own_errors(data)
    assert_only_own_errors(frame_of(data))
    assert_only_own_errors(frame_of(DEFLATED + data))
    assert_only_own_errors(frame_of(trace_by_format.deflated(data)))
