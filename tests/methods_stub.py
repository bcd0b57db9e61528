"""Write ``methods.pyi``, which declares the analyses' methods for type checkers and editors.

Run ``python tests/methods_stub.py`` after an analysis was added or changed.
"""

import inspect
from pathlib import Path

from dasfprof.analysis import tables
from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.questions import Question

PATH = Path(tables.__path__[0]).with_name("methods.pyi")

_HEAD = '''\
"""The methods of the registered questions; written by ``python tests/methods_stub.py``."""
# ruff: noqa: E501

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from dasfprof.analysis.trace import Trace

class Questions:
    """The questions, a method each."""

    _progress: bool

    @property
    def trace(self) -> Trace:
        """The run as tables."""
'''


def stub_text() -> str:
    return _HEAD + "".join(f"\n{_method(question)}" for question in questions.all())


def _method(question: Question) -> str:
    parameters, keyword_only = ["self"], False
    for item in question.signature.parameters.values():
        if item.kind is item.KEYWORD_ONLY and not keyword_only:
            parameters.append("*")
            keyword_only = True
        annotation = inspect.formatannotation(item.annotation).replace("collections.abc.", "")
        annotation = annotation.replace("typing.", "").replace("pandas.", "pd.")
        annotation = annotation.replace("'", '"')
        default = "" if item.default is item.empty else f" = {item.default!r}".replace("'", '"')
        parameters.append(f"{item.name}: {annotation}{default}")
    lines = "".join(f"        {parameter},\n" for parameter in parameters)
    listed = "self" if len(parameters) == 1 else f"\n{lines}    "
    head = f"    def {question.name}({listed}) -> pd.DataFrame:\n"
    return f'{head}        """{question.summary}"""\n'


if __name__ == "__main__":
    PATH.write_text(stub_text(), encoding="utf-8")
