"""Each failed attempt has its traceback, up to a limit, and the error is unchanged."""

import json
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import client_of
from distributed import Client

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.recording.task_runs import logs

client = client_of(1, 1, processes=False)


def fail_first(counter: str) -> int:
    with Path(counter).open("a") as tries:
        tries.write("x")
        number = tries.tell()
    if number == 1:
        raise OSError("the first")
    if number == 2:
        return inner()
    return number


def inner() -> int:
    raise ValueError("the second")


def recurse(depth: int) -> int:
    return odd(depth - 1) + 1 if depth else inner()


def odd(depth: int) -> int:
    return recurse(depth) + 1


def tracebacks_of(directory: Path, function: str | None = None) -> list[dict[str, Any]]:
    table = TraceAnalyser(directory, progress=False).tracebacks(function)
    return table.to_dict("records")


def test_each_attempt_has_its_own(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path / "traces"):
        task = client.submit(fail_first, str(tmp_path / "tries"), retries=4, key="fail_first-1")
        assert task.result() == 3
    first, second = tracebacks_of(tmp_path / "traces")
    facts = [(row["Attempt"], row["Attempts"], row["Exception"]) for row in (first, second)]
    assert facts == [(1, 3, "OSError('the first')"), (2, 3, "ValueError('the second')")]
    line = fail_first.__code__.co_firstlineno + 5
    assert f'File "{__file__}", line {line}, in fail_first' in first["Traceback"]
    assert 'raise OSError("the first")' in first["Traceback"]
    inside = inner.__code__.co_firstlineno + 1
    places = [line for line in second["Traceback"].splitlines() if line.startswith('  File "')]
    assert places[-2:] == [
        f'  File "{__file__}", line {line + 2}, in fail_first',
        f'  File "{__file__}", line {inside}, in inner',
    ]
    assert tracebacks_of(tmp_path / "traces", "no such function") == []


def test_long_ones_are_cut_and_code_is_optional(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path, record_code=False):
        client.submit(recurse, 150, pure=False).exception()
    (row,) = tracebacks_of(tmp_path)
    text = row["Traceback"]
    assert len(text) < logs.BEGIN + logs.END + 50
    assert "characters ..." in text
    assert text.rstrip().endswith("in inner")
    assert "raise ValueError" not in text


def test_they_are_bounded(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_TRACEBACKS", 1)
    with dasfprof.profile(client, directory=tmp_path):
        for number in range(3):
            client.submit(inner, key=f"inner-{number}").exception()
    assert len(tracebacks_of(tmp_path)) == 1
    notes = [note.text for note in TraceAnalyser(tmp_path, progress=False).trace.notes]
    assert any("lack their traceback" in text for text in notes)


def in_a_library() -> None:
    json.loads("{")


def in_an_installed_one() -> None:
    np.ones(3).reshape(2)


def test_an_error_was_raised_at_the_last_line_of_the_users_code() -> None:
    for function in (in_a_library, in_an_installed_one):
        code = function.__code__
        with pytest.raises(ValueError) as caught:
            function()
        text = "".join(traceback.format_tb(caught.tb)[1:])
        assert logs.raised_at(text) == f"{__file__}:{code.co_firstlineno + 1} {code.co_name}"
    text = '  File "/x/site-packages/a.py", line 3, in outer\n    inner()\n'
    text += '  File "/x/site-packages/b.py", line 9, in inner\n    raise ValueError\n'
    assert logs.raised_at(text) == "/x/site-packages/b.py:9 inner"
    assert [logs.raised_at(text) for text in (None, "", "no traceback")] == [None] * 3
