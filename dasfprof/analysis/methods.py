"""`Questions`: the registered questions (analyses that return tables) as methods.

``tests/methods_stub.py`` writes ``methods.pyi``, which type checkers and editors read.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pkgutil import get_data
from typing import Any

import pandas as pd

from dasfprof.analysis.large.run import LargeRun
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.questions import Question


class Questions:
    """Mixin of `TraceAnalyser` with one method per registered question."""

    _progress: bool
    run: Run
    _large: LargeRun | None


def _method(question: Question) -> Callable[..., pd.DataFrame]:
    def method(self: Questions, *args: Any, **arguments: Any) -> pd.DataFrame:
        named = question.bind(*args, **arguments)
        if self._large is not None and self._large.answers(question, named):
            return self._large.ask(question, named)
        if question.takes_progress:
            named["progress"] = self._progress
        return question.answer(self.run, **named)

    method.__name__ = question.name
    method.__qualname__ = f"{Questions.__qualname__}.{question.name}"
    method.__doc__ = question.answer.__doc__
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = question.signature
    parameters = [self, *signature.parameters.values()]
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    method.__annotations__ = {
        name: annotation
        for name, annotation in question.answer.__annotations__.items()
        if name == "return" or name in signature.parameters
    }
    return method


class _Unloaded:
    """Placeholder for a question's method, until the questions are imported."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Questions | None, owner: type[Questions]) -> Any:
        # The first access to any placeholder imports all questions and replaces all placeholders.
        for question in questions.all():
            setattr(Questions, question.name, _method(question))
        return getattr(owner if instance is None else instance, self.name)


_STUB = (get_data(__package__, "methods.pyi") or b"").decode()
for _name in re.findall(r"(?<!@property\n)    def (\w+)\(", _STUB):
    setattr(Questions, _name, _Unloaded(_name))
