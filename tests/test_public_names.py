"""Public names: exports of the root package, their declarations for type checkers, and types."""

import ast
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from clusters import new_client

import dasfprof
from dasfprof import ProfiledRun, errors, register_default_profiler

#: Parameters and return values ("return") of public functions that may have any type, and why.
ANYTHING = {
    "CompleteEvent.process_id": "any value that msgpack can write identifies a process",
    "CompleteEvent.thread_id": "any value that msgpack can write identifies a thread",
    "CompleteEvent.args": "users record values of their own",
    "EventProfiler.database_creation_kwargs": "passed on to the database",
    "EventProfiler.fields": "the fields of the event, checked by its class",
    "FileDatabase.header": "users record facts of their own",
    "ProfiledRun.options": "passed on to TraceAnalyser",
}
#: Fields that event classes share.
EVENTS = ("InstantEvent", "DurationBeginEvent", "DurationEndEvent")


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield each public function or method, with the name of its class or function."""
    for name in dasfprof.__all__:
        value = getattr(dasfprof, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value) and not issubclass(value, Exception):
            for member, function in inspect.getmembers(value):
                function = function.fget if isinstance(function, property) else function
                function = getattr(function, "func", function)
                own = member == "__init__" or not member.startswith("_")
                if own and (inspect.isfunction(function) or inspect.ismethod(function)):
                    yield name, function


def test_any_in_a_public_signature_has_a_reason() -> None:
    found = {
        f"{'CompleteEvent' if name in EVENTS else name}.{parameter}"
        for name, function in public_functions()
        for parameter, annotation in function.__annotations__.items()
        if "Any" in str(annotation)
    }
    assert found == ANYTHING.keys()


def test_each_public_parameter_has_a_type() -> None:
    for name, function in public_functions():
        _, *parameters = [None, *inspect.signature(function).parameters]
        bare = set(parameters) - {"self", "cls"} - function.__annotations__.keys()
        assert not bare, (name, function, bare)
        assert function.__name__ == "__init__" or "return" in function.__annotations__, name


def test_type_checkers_see_the_names_that_the_root_has() -> None:
    stub = Path(dasfprof.__file__).with_suffix(".pyi")
    seen = {
        (alias.name, alias.asname): node.module
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    further = {"errors", "write_comparison"}
    assert {name for name, _ in seen} - further == set(dasfprof.__all__) - {"__version__"}
    for (name, shown), module in seen.items():
        assert name == shown
        assert getattr(dasfprof, name) is getattr(import_module(str(module)), name)


def test_the_other_errors_are_those_of_one_tree() -> None:
    for value in vars(errors).values():
        assert not inspect.isclass(value) or issubclass(value, dasfprof.DasfprofError)


def test_a_handle_can_be_awaited_whatever_the_client(tmp_path: Path) -> None:
    assert get_type_hints(register_default_profiler)["return"] is ProfiledRun

    async def awaited(run: ProfiledRun) -> ProfiledRun:
        return await run

    with new_client(n_workers=1, processes=False) as client:
        run = register_default_profiler(client, "sync", directory=tmp_path)
        assert isinstance(run, ProfiledRun)
        assert client.sync(awaited, run) is run
        run.stop()


def test_the_first_example_of_the_readme_shows_a_ledger() -> None:
    readme = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    first = ast.parse(readme.split("```python\n")[1].split("```")[0])
    calls = [node.func for node in ast.walk(first) if isinstance(node, ast.Call)]
    asked = {
        func.attr
        for func in calls
        if isinstance(func, ast.Attribute) and ast.unparse(func.value) == "analyser"
    }
    assert {"lines", "plan"} <= asked
    assert [name for name in asked if not hasattr(dasfprof.TraceAnalyser, name)] == []
