"""Log records of task runs are recorded, with the first error of each, and logging is unchanged."""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import client_of
from distributed import Client
from recorded_facts import assert_whole, computed, facts, trace_files

import dasfprof
from dasfprof import TraceAnalyser

CALL_HANDLERS = logging.Logger.callHandlers
LOGGER = logging.getLogger("tests.swallowing")


class Kept(logging.Handler):
    """Handler of the program that stores its records."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class Hostile:
    """Value that only a handler of the program may format."""

    written = 0

    def __str__(self) -> str:
        Hostile.written += 1
        return "hostile"


client = client_of(2, 2, scope="function", processes=False)


@pytest.fixture
def handler() -> Iterator[Kept]:
    handler = Kept()
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    yield handler
    LOGGER.propagate = True
    LOGGER.setLevel(logging.NOTSET)
    LOGGER.removeHandler(handler)


def swallow(number: int) -> None:
    try:
        raise KeyError(number)
    except KeyError:
        LOGGER.exception("no chunk %s", Hostile())
        LOGGER.error("and again")


def warn(number: int) -> None:
    LOGGER.warning("only a warning")


def warn_of_exception(number: int) -> int:
    try:
        return 1 // number
    except ZeroDivisionError:
        LOGGER.warning("no quotient", exc_info=True)
        return 7


def test_the_first_error_of_each_task_run(client: Client, handler: Kept, tmp_path: Path) -> None:
    client.gather(client.map(swallow, range(3), pure=False))
    without = Hostile.written, handler.texts.copy()
    Hostile.written, handler.texts = 0, []
    run = dasfprof.register_default_profiler(client, directory=tmp_path)
    assert client.gather(client.map(swallow, range(3), pure=False)) == [None] * 3
    assert (Hostile.written, sorted(handler.texts)) == (without[0], sorted(without[1]))
    client.gather(client.map(warn, range(3)))
    assert client.submit(warn_of_exception, 0).result() == 7
    LOGGER.error("of no task")
    run.stop()
    assert logging.Logger.callHandlers is CALL_HANDLERS
    assert_whole(run)
    rows = facts(run, "TracePlugin", "Log Record")
    errors = [row for row in rows if row["error"]]
    swallowed = [row for row in errors if row["exception"] == "KeyError"]
    runs = {(row["key"], row["run_id"]) for row in computed(run) if row["name"] == "swallow"}
    assert {(row["key"], row["run_id"]) for row in swallowed} == runs
    assert len(swallowed) == 3
    for row in swallowed:
        assert (row["level"], row["message"]) == ("ERROR", "no chunk %s")
        assert row["logger"] == "tests.swallowing"
        assert f"{__file__}:" in row["line"]
        assert row["line"].endswith(" swallow")
    (other,) = [row for row in errors if row not in swallowed]
    assert (other["level"], other["exception"]) == ("WARNING", "ZeroDivisionError")
    texts = [(row["level"], row["message"]) for row in rows if not row["error"]]
    assert sorted(texts) == [("ERROR", "and again")] * 3 + [("WARNING", "only a warning")] * 3
    analyser = TraceAnalyser(tmp_path, progress=False)
    (finding,) = (each for each in analyser.findings() if each.rule == "swallowed-errors")
    assert finding.row()["Finding"].startswith("3 of 3 task runs of swallow logged an error")
    table = analyser.logs("swallow")
    assert sorted(table["Message"]) == ["and again"] * 3 + ["no chunk %s"] * 3
    assert sorted(table["Exception"]) == [""] * 3 + ["KeyError"] * 3
    assert set(table["Function"]) == {"swallow"}
    assert (table["Time (s)"] > 0).all()
    everything = analyser.logs()
    assert len(everything) == len(rows)
    keys = {str(row["key"]) for row in computed(run)}
    assert {text.strip("'") for text in everything["Task Key"]} <= keys
    assert analyser.logs("nobody").empty


def test_a_record_that_cannot_be_noted(
    client: Client, handler: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr("dasfprof.recording.task_runs.logs.type_name", fail)
    run = dasfprof.register_default_profiler(client, directory=tmp_path)
    assert client.submit(swallow, 1).result() is None
    run.stop()
    assert handler.texts == ["no chunk hostile", "and again"]
    # The first record has an exception of unknown type; the other has none.
    assert [row["message"] for row in facts(run, "TracePlugin", "Log Record")] == ["and again"]
    assert len(computed(run)) == 1


def talk(records: int) -> int:
    for number in range(records):
        LOGGER.info("step %d of %s, key %s", number, "some", "AKIA-secret")
    LOGGER.warning("odd %r", Hostile())
    LOGGER.error("<b>%(name)s</b>", {"name": "x"})
    return records


def records_of(run: Any) -> list[tuple[str, str, int]]:
    rows = facts(run, "TracePlugin", "Log Record")
    return [(row["level"], row["message"], row["error"]) for row in rows]


def test_levels_and_values_are_chosen(client: Client, handler: Kept, tmp_path: Path) -> None:
    odd, error = ("WARNING", "odd %r", 0), ("ERROR", "<b>%(name)s</b>", 1)
    for options, expected in (
        ({}, [odd, error]),
        ({"log_level": "error"}, [error]),
        ({"log_level": "off"}, [error]),
        ({"log_level": "info"}, [("INFO", "step %d of %s, key %s", 0)] * 2 + [odd, error]),
        (
            {"log_level": "INFO", "log_values": True},
            [
                ("INFO", "step 0 of some, key AKIA-secret", 0),
                ("INFO", "step 1 of some, key AKIA-secret", 0),
                odd,  # its value has a class of the program
                ("ERROR", "<b>x</b>", 1),
            ],
        ),
    ):
        handler.texts = []
        with dasfprof.profile(client, directory=tmp_path, **options) as run:  # type: ignore[arg-type]
            assert client.submit(talk, 2, pure=False).result() == 2
        assert records_of(run) == expected
        assert len(handler.texts) == 4
        assert_whole(run)


def test_records_are_bounded(client: Client, handler: Kept, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path, log_level="info") as run:
        client.submit(talk, 50, pure=False).result()
        client.submit(talk, 3, pure=False).result()
    # The first run has 20 records and the error; the second has 3, a warning and the error.
    assert Counter(level for level, _, _ in records_of(run)) == {
        "INFO": 23, "WARNING": 1, "ERROR": 2,
    }  # fmt: skip
    lost = [file.dropped_by for file in trace_files(run, "TracePlugin") if list(file.batches())]
    assert sum(each.get("too many logs", 0) for each in lost) == 31
