"""Keys as numbers: equal keys have the same number, and texts and functions are those of Dask."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from dasfprof.analysis.trace import keys as key_table
from dasfprof.analysis.trace.key_texts import KeyTexts
from dasfprof.analysis.trace.keys import GrowingColumn, KeyCollector, split_keys

_hex = st.text("0123456789abcdef", min_size=32, max_size=32)
_name = st.text("abcdefsum_<>('.é\ud800", max_size=8) | st.sampled_from(["sum", "rechunk-merge"])
_number = st.integers(0, 2**32 + 2)
_texts = st.one_of(
    _name,
    st.builds("{}-{}".format, _name, _hex),
    st.builds("{}-{}".format, _name, _number),
    st.builds("{}-{}".format, _name, st.uuids()),
    st.builds("{}-{}-{}".format, _name, st.uuids(), _number),
    st.builds("{}-{}".format, _name, st.floats(2**30, 2**31)),
    st.builds("('{}-{}', {}, 0)".format, _name, _hex, _number),
    st.builds("('{}', {})".format, _name, _number),
)
_scalars = _texts | _number | st.floats(allow_nan=False) | st.binary(max_size=4)
_keys = st.one_of(
    _scalars,
    st.tuples(_texts),
    st.tuples(_texts, _number),
    st.tuples(_texts, _number, _number, _number, _number),
    st.tuples(_texts, _number, st.tuples(_texts, _number)),
    st.tuples(st.tuples(_texts, _number), st.none() | st.booleans()),
)


def table_of(keys: list[Any]) -> tuple[key_table.KeyTable, np.ndarray[Any, Any]]:
    collector = KeyCollector()
    for start in range(0, len(keys), 3):  # many columns, like from many blocks
        collector.add(split_keys(keys[start : start + 3]))
    return collector.finish()


def named(key: Any) -> str:
    try:
        return str(key_split(key))
    except (TypeError, ValueError, IndexError):
        return "Other"


@examples(167)
@given(st.lists(_keys, max_size=12))
@example([f"f-{'a' * 32}", ("f-1", 1), "('f-1', 1)", ("f-1", np.int64(1))])
@example(["('f-1',)", "('f', 1, 2, 3, 4)", "('f', 01)", "('f', 4294967296)", "('', 1)", "('é', 0)"])
@example(["", "-", "-1", "x-" + "f" * 32, ("",), ("", 1), b"\xff", 1, 1.5])
def test_keys_are_numbered_named_and_written_as_dask_does(keys: list[Any]) -> None:
    table, ids = table_of(keys)
    plain = [tuple(map(int_of, key)) if isinstance(key, tuple) else key for key in keys]
    for first, first_id in zip(plain, ids, strict=True):
        for second, second_id in zip(plain, ids, strict=True):
            if type(first) is type(second):
                assert (first == second) == (first_id == second_id)
    assert table.keys(ids) == plain
    assert table.texts(ids).tolist() == [str(key) for key in plain]
    codes, names = table.functions()
    assert [names[code] for code in codes[ids].tolist()] == [named(key) for key in plain]


def int_of(item: Any) -> Any:
    return item.item() if isinstance(item, np.integer) else item


def test_a_list_is_the_tuple_that_a_plain_msgpack_writer_lost() -> None:
    table, ids = table_of([["sum-1", 3], ("sum-1", 3)])
    assert ids.tolist() == [0, 0]
    assert table.keys(ids) == [("sum-1", 3), ("sum-1", 3)]


def test_keys_with_equal_hashes_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        key_table, "hashes_of", lambda head_ids, tails: tails[:, 0].astype(np.uint64) % np.uint64(3)
    )
    keys = [("f", n % 50) for n in range(200)] + [("g", n % 50) for n in range(200)]
    table, ids = table_of(keys)
    assert len(table) == 100
    assert ids.tolist() == [n % 50 for n in range(200)] + [50 + n % 50 for n in range(200)]
    assert table.keys(ids) == keys


@examples(67)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9) | st.integers(0, 2**32 - 1))))
def test_blocks_of_collections_are_numbered_as_in_a_dict(pairs: list[tuple[int, int]]) -> None:
    keys: list[Any] = [(f"sum-{head}", number, number % 3) for head, number in pairs]
    keys += ["b-1", "a-1", "b-1", ("b", 1), "a-2", "a-1"]
    _, ids = table_of(keys)
    numbers: dict[Any, int] = {}
    assert ids.tolist() == [numbers.setdefault(key, len(numbers)) for key in keys]


def test_a_column_of_key_texts_acts_as_a_column_of_texts() -> None:
    keys = [("sum-1", n % 5) for n in range(12)] + [f"inc-{'0f' * 16}", "x"]
    table, ids = table_of(keys)
    lazy = pd.Series(KeyTexts(table.texts, ids), name="key")
    plain = pd.Series([str(key) for key in keys], dtype=object, name="key")
    assert lazy.memory_usage(index=False) < plain.memory_usage(index=False)
    assert lazy.tolist() == plain.tolist()
    assert lazy[5] == plain[5]
    assert lazy[3:9].astype(object).tolist() == plain[3:9].tolist()
    assert (lazy == "('sum-1', 3)").tolist() == (plain == "('sum-1', 3)").tolist()
    assert lazy.str.len().tolist() == plain.str.len().tolist()
    assert lazy.isin(["x"]).tolist() == plain.isin(["x"]).tolist()
    assert lazy.value_counts().to_dict() == plain.value_counts().to_dict()
    assert lazy.sort_values().tolist() == plain.sort_values().tolist()
    assert lazy.unique().tolist() == plain.unique().tolist()
    assert lazy.reindex([13, 14]).isna().tolist() == [False, True]
    assert lazy.reindex([14, 13]).fillna("none").tolist() == ["none", "x"]
    both, other = pd.DataFrame({"lazy": lazy, "plain": plain}), table_of(["y-1"])
    assert (both.groupby("lazy").size().to_numpy() == both.groupby("plain").size()).all()
    assert both.merge(both, left_on="lazy", right_on="plain").shape[0] == 32
    assert both[["lazy"]].to_csv() == both[["plain"]].rename(columns={"plain": "lazy"}).to_csv()
    more = pd.concat([lazy, pd.Series(KeyTexts(other[0].texts, other[1]))])
    assert more.tolist() == [*plain, "y-1"]
    assert pickle.loads(pickle.dumps(more)).tolist() == more.tolist()
    assert pickle.loads(pickle.dumps(lazy)).tolist() == plain.tolist()
    lazy[3] = "mine"
    lazy[4] = np.nan
    assert lazy.tolist()[:4] == [*plain[:3], "mine"]
    assert lazy.isna().sum() == 1


def test_a_column_of_one_value_takes_its_memory_once() -> None:
    column = GrowingColumn(np.float64)
    for start in (0, 5):
        column.add(start, np.broadcast_to(np.nan, 3))
    found = column.finish(10, np.nan)
    assert found.strides == (0,)
    assert np.isnan(found).tolist() == [True] * 10


_pieces = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from([0.0, -0.0, 1.5, np.nan]))
)


@given(_pieces)
def test_a_growing_column_against_a_list(pieces: list[tuple[int, int, float]]) -> None:
    column, expected = GrowingColumn(np.float32), []
    for gap, length, value in pieces:
        expected += [-1.0] * gap
        column.add(len(expected), np.broadcast_to(np.float64(value), length))
        expected += [value] * length
    found = column.finish(len(expected) + 1, -1.0)
    assert list(map(repr, found.tolist())) == list(map(repr, [*expected, -1.0]))
