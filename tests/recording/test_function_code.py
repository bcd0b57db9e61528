"""The source of tasks' functions is what ran, or there is none, with the reason."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.bag
import pytest
from distributed import Client, LocalCluster
from recorded_facts import assert_whole, computed

import dasfprof
from dasfprof.analysis import TraceAnalyser
from dasfprof.recording.task_runs import function_code

SOURCE = (
    '''"""A program."""

FACTOR = 2


def decorated(function):
    return function


@decorated
def double(x):
    # <b>hostile</b> comment
    return FACTOR * x


def outer(y):
    def inner(x):
        return x + y

    return inner


one, other = (lambda x: x + 1), (lambda x: x + 2)


def long(x):
'''
    + "".join(f"    x += {n}\n" for n in range(150))
    + "    return x\n"
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a program whose file the workers see."""
    (tmp_path / "program_of_mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("program_of_mine")
    del sys.modules["program_of_mine"]


def code_of(directory: Path, function: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        TraceAnalyser(directory, progress=False).function_code(function).to_dict("records")
    )
    return found


def test_source_of_functions(client: Client, tmp_path: Path, program: Any) -> None:
    with dasfprof.profile(client, directory=tmp_path / "traces") as run:
        client.gather(client.map(program.double, range(3), pure=False))
        client.submit(program.outer(3), 4, pure=False).result()
        client.submit(program.other, 4, pure=False, key="lambda-1").result()
        client.submit(program.long, 4, pure=False).result()
        client.submit(len, "abc", pure=False).result()
        dask.delayed(program.double)(4).compute()
    assert_whole(run)
    file = str(tmp_path / "program_of_mine.py")
    lines = SOURCE.splitlines(keepends=True)
    (double,) = code_of(tmp_path / "traces", "double")
    assert double == {
        "Function": "double",
        "Code": "program_of_mine.double",
        "File": file,
        "Line": 10,
        "Source": "".join(lines[9:13]),
        "Missing": "",
    }
    (inner,) = code_of(tmp_path / "traces", "inner")
    assert (inner["Line"], inner["Source"]) == (17, "".join(lines[16:18]))
    (other,) = code_of(tmp_path / "traces", "lambda")
    assert (other["Line"], other["Source"]) == (23, lines[22])
    (long,) = code_of(tmp_path / "traces", "long")
    assert long["Source"].count("\n") == 101
    assert long["Source"].endswith("    x += 98\n... and 52 lines\n")
    assert code_of(tmp_path / "traces", "len") == []  # C code


def test_functions_of_fused_tasks(client: Client, tmp_path: Path, program: Any) -> None:
    with dasfprof.profile(client, directory=tmp_path / "traces"):
        bag = dask.bag.from_sequence([1, 2, 3], npartitions=1).map(program.double)
        assert bag.map(program.one).compute() == [3, 5, 7]
    found = {row["Code"] for row in code_of(tmp_path / "traces")}
    assert {"program_of_mine.double", "program_of_mine.<lambda>"} <= found


def test_a_file_that_is_another_is_not_its_source(
    client: Client, tmp_path: Path, program: Any
) -> None:
    file = tmp_path / "program_of_mine.py"
    for text, reason in (
        (SOURCE.replace("FACTOR * x", "FACTOR + x"), "changed"),
        (SOURCE.replace('"""A program."""', '"""A program."""\n'), "changed"),
        ("def double(:", "SyntaxError"),
        ("#" * 200_000, "too large"),
        (None, "no such file"),
    ):
        file.unlink()
        if text is not None:
            file.write_text(text)
        directory = tmp_path / f"traces {reason} {len(text or '')}"
        with dasfprof.profile(client, directory=directory):
            assert client.submit(program.double, 4, pure=False).result() == 8
        (told,) = code_of(directory)
        assert (told["Code"], told["Line"], told["Source"]) == ("program_of_mine.double", 10, "")
        assert reason in told["Missing"]
        if text is None:
            file.touch()


def test_libraries_are_told_by_name_and_code_can_be_left_out(
    client: Client, tmp_path: Path, program: Any
) -> None:
    with dasfprof.profile(client, directory=tmp_path / "on"):
        client.submit(importlib.import_module, "json", pure=False).result()
    (told,) = code_of(tmp_path / "on")
    assert (told["Code"], told["Source"]) == ("importlib.import_module", "")
    assert told["Missing"] == "of a library"
    with dasfprof.profile(client, directory=tmp_path / "off", record_code=False):
        client.submit(program.double, 2, pure=False).result()
    assert code_of(tmp_path / "off") == []


def test_functions_are_bounded_and_errors_kept(
    client: Client, tmp_path: Path, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_code, "MOST_NAMES", 3)
    with dasfprof.profile(client, directory=tmp_path / "many"):
        for number in range(6):
            client.submit(program.double, number, key=f"name{'abcdef'[number]}-1").result()
    assert [row["Function"] for row in code_of(tmp_path / "many")] == ["namea", "nameb", "namec"]

    def broken(_: Any) -> Any:
        raise RuntimeError("injected")

    monkeypatch.setattr(function_code, "functions_of", broken)
    with dasfprof.profile(client, directory=tmp_path / "broken") as run:
        assert client.submit(program.double, 7, pure=False).result() == 14
    assert len(computed(run)) == 1
