"""`Questions`: the registered questions as methods, for `TraceAnalyser`.

Type checkers and editors read ``methods.pyi``, which ``tests/methods_stub.py`` writes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pandas as pd

from dasfprof.analysis.large.run import LargeRun
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.questions import Question


class Questions:
    """The questions, a method each."""

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


for _question in questions.all():
    setattr(Questions, _question.name, _method(_question))
