"""The recorded source of tasks' functions is that which ran, or is missing with a reason."""

import asyncio
import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.bag
import pytest
from clusters import client_of, new_client, wait_until
from distributed import Client, Event
from recorded_facts import assert_whole, computed

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis.live import run as live_run
from dasfprof.analysis.live.run import LiveRun
from dasfprof.analysis.trace.sent_functions import SentFunctions
from dasfprof.analysis.under_way.causes import find_causes
from dasfprof.handles.inspection import look_at
from dasfprof.recording.task_runs import function_code

SOURCE = '''"""A program."""
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
SOURCE += "".join(f"    x += {n}\n" for n in range(150))
SOURCE += "    return x\n\nthird = lambda x: x * 3\n"

client = client_of(1, 2, processes=False)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a program whose file the workers can read."""
    (tmp_path / "program_of_mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("program_of_mine")
    del sys.modules["program_of_mine"]


def code_of(directory: Path, function: str | None = None) -> list[dict[str, Any]]:
    return TraceAnalyser(directory, progress=False).function_code(function).to_dict("records")


def test_source_of_functions(client: Client, tmp_path: Path, program: Any) -> None:
    with dasfprof.profile(client, directory=tmp_path / "traces") as run:
        client.gather(client.map(program.double, range(3), pure=False))
        client.submit(program.outer(3), 4, pure=False).result()
        client.submit(program.other, 4, pure=False, key="lambda-1").result()
        client.gather(client.map(program.third, range(3), pure=False))
        client.submit(program.long, 4, pure=False).result()
        client.submit(len, "abc", pure=False).result()
        dask.delayed(program.double)(4).compute()
    assert_whole(run)
    file = str(tmp_path / "program_of_mine.py")
    lines = SOURCE.splitlines(keepends=True)
    (double,) = code_of(tmp_path / "traces", "double")
    names = {"Function": "double", "Code": "program_of_mine.double", "Missing": ""}
    assert double == {**names, "File": file, "Line": 7, "Source": "".join(lines[6:10])}
    (inner,) = code_of(tmp_path / "traces", "inner")
    assert (inner["Line"], inner["Source"]) == (13, "".join(lines[12:14]))
    other, third = code_of(tmp_path / "traces", "lambda")  # one name, two functions
    assert (other["Line"], other["Source"]) == (17, lines[16])
    assert (third["Line"], third["Source"]) == (len(lines), "third = lambda x: x * 3\n")
    (long,) = code_of(tmp_path / "traces", "long")
    assert long["Source"].count("\n") == 101
    assert long["Source"].endswith("    x += 98\n... and 52 lines\n")
    assert code_of(tmp_path / "traces", "len") == []  # C code


def test_functions_sent_without_their_file(tmp_path: Path) -> None:
    """cloudpickle may leave out the file of a program's functions, but the client knows it."""

    def fail(x: int) -> int:
        def inner() -> int:
            return 1 // x

        return inner()

    traces = tmp_path / "traces"
    with (
        new_client(n_workers=1, threads_per_worker=1) as client,
        dasfprof.profile(client, directory=traces) as run,
    ):
        assert client.submit(fail, 1, pure=False).result() == 1
        with pytest.raises(ZeroDivisionError):
            client.submit(fail, 0, pure=False).result()
        hooked = dict(vars(cloudpickle.cloudpickle.Pickler))
    assert vars(cloudpickle.cloudpickle.Pickler) != hooked  # the hook was removed
    analyser = run.analyser(progress=False)
    first = fail.__code__.co_firstlineno
    (code,) = analyser.function_code("fail").to_dict("records")
    assert (code["File"], code["Line"], code["Missing"]) == (__file__, first, "")
    assert code["Source"].startswith("    def fail(x: int) -> int:\n        def inner()")
    assert analyser.trace.tasks["raised_at"].dropna().tolist() == [f"{__file__}:{first + 2} inner"]
    (text,) = analyser.trace.tracebacks["text"]
    assert f'File "{__file__}", line {first + 4}, in fail' in text
    assert "<dynamic-code>" not in text


@pytest.mark.whole_program
def test_functions_without_file_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without recording, the file is unknown. With a recording client, it is known."""

    def waits() -> None:
        Event("never-set").wait()

    if pickle.loads(cloudpickle.dumps(waits)).__code__.co_filename == __file__:
        pytest.skip("this cloudpickle sends the files of functions")
    monkeypatch.setattr(live_run, "LONG_SECONDS", 0.0)
    line = waits.__code__.co_firstlineno + 1
    with new_client(n_workers=1, threads_per_worker=2) as client:

        def seen(expected: str) -> str:
            causes = find_causes(asyncio.run(look_at(client.cluster.scheduler_address, limit=10.0)))
            text = "\n".join(f"{cause.text} {cause.evidence} {cause.line}" for cause in causes)
            assert "<dynamic-code>" not in text
            return text if expected in text else ""

        futures = [client.submit(waits)]
        told = wait_until(lambda: seen(f"waits, line {line} of code that the client sent"))
        assert __file__ not in told
        with dasfprof.profile(client, directory=tmp_path / "traces"):
            futures.append(client.submit(waits, pure=False))
            live = LiveRun(tmp_path / "traces")
            expected = f"{__file__}:{line} "

            def shown() -> bool:
                lines = [task.activity.line or "" for task in live.read().long_tasks]
                assert not any("<dynamic-code>" in each for each in lines)
                return sum(each.startswith(expected) for each in lines) == 2

            wait_until(shown)
            wait_until(lambda: seen(expected))
            Event("never-set").set()
            client.gather(futures)


def test_files_are_not_guessed() -> None:
    columns = ("function", "file", "line", "last", "source", "missing")
    rows = [("a.f", "/a.py", 1, 9), ("a.f.<locals>.g", "/a.py", 3, 4), ("b.f", "/b.py", 8, 12)]
    sent = SentFunctions(dict(zip(columns, (*row, None, None), strict=True)) for row in rows)
    files = {1: "/a.py", 7: "/a.py", 8: "<dynamic-code>", 9: "<dynamic-code>", 10: "/b.py"}
    files[13] = "<dynamic-code>"
    assert {line: sent.file("f", line) for line in files} == files
    assert sent.file("f.<locals>.g", 3) == sent.file("g", 4) == "/a.py"
    assert sent.file("h", 3) == "<dynamic-code>"  # a function that was not registered
    assert sent.in_text("<dynamic-code>:10 f") == "/b.py:10 f"
    assert sent.in_text("mine.py:10 f") == "mine.py:10 f"


def test_another_file_is_not_its_source(client: Client, tmp_path: Path, program: Any) -> None:
    file = tmp_path / "program_of_mine.py"
    for text, reason in (
        (SOURCE.replace("FACTOR * x", "FACTOR + x"), "changed"),
        (SOURCE.replace('"""A program."""', '"""A program."""\n'), "changed"),
        ("def double(:", "SyntaxError"),
        ("#" * 200_000, "too large"),
        (None, "no such file"),
    ):
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        directory = tmp_path / f"traces {reason} {len(text or '')}"
        with dasfprof.profile(client, directory=directory):
            assert client.submit(program.double, 4, pure=False).result() == 8
        (told,) = code_of(directory)
        assert (told["Code"], told["Line"], told["Source"]) == ("program_of_mine.double", 7, "")
        assert reason in told["Missing"]


def test_fused_tasks_libraries_and_no_code(client: Client, tmp_path: Path, program: Any) -> None:
    with dasfprof.profile(client, directory=tmp_path / "on"):
        client.submit(importlib.import_module, "json", pure=False).result()
        bag = dask.bag.from_sequence([1, 2, 3], npartitions=1).map(program.double)
        assert bag.map(program.one).compute() == [3, 5, 7]
    rows = {row["Code"]: row for row in code_of(tmp_path / "on")}
    assert {"program_of_mine.double", "program_of_mine.<lambda>"} <= rows.keys()
    library = rows["importlib.import_module"]
    assert (library["Source"], library["Missing"]) == ("", "of a library")
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
