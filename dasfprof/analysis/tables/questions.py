"""The registry of analyses, which are called questions in the code. Each is registered once."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal, TypeVar, get_args

import pandas as pd
from pandas.api.types import union_categoricals

from dasfprof.analysis.run import Run
from dasfprof.errors import InvalidArgumentError


@dataclass(frozen=True)
class InParts:
    """Functions that compute a table in time windows if the run does not fit into memory.

    `of_part` and `combine` also receive the arguments that the user passed, by name.
    """

    #: Function that computes a small, picklable partial result from one time window.
    of_part: Callable[..., Any]
    #: Function that computes the table from a run without task runs and transfers, and from all
    #: partial results.
    combine: Callable[..., pd.DataFrame]
    #: Function that merges two partial results. None if the result would not be smaller than both.
    fold: Callable[[Any, Any], Any] | None = None
    #: Values of `by` for which this works. Empty if it works for all values, or if there is no
    #: `by`.
    by: tuple[str, ...] = ()

    def supports(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the table can be computed in time windows with these arguments."""
        return not self.by or arguments.get("by", self.by[0]) in self.by


#: Value for tables that need only samples and other events, which always fit into memory.
NO_PARTS: Literal["no parts"] = "no parts"


def joined_rows(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all time windows. Categorical columns stay categorical."""
    columns = {
        name: union_categoricals([part[name] for part in parts])
        if isinstance(parts[0][name].dtype, pd.CategoricalDtype)
        else pd.concat([part[name] for part in parts], ignore_index=True)
        for name in parts[0]
    }
    return pd.DataFrame(columns, copy=False)


Answer = TypeVar("Answer", bound=Callable[..., pd.DataFrame])
Group = Literal[
    "diagnosis", "time", "lines", "steps", "balance", "reports", "predictions", "events"
]

#: Groups of questions in order, with their descriptions.
GROUPS: dict[Group, str] = {
    "diagnosis": "What is wrong with a run, and what to change.",
    "time": "Where the time of a run went, and what it depended on.",
    "lines": (
        "Which lines of the program took the time: the lines that built the tasks, and the lines "
        "that ran according to stack samples. A sample represents the time since the previous "
        "sample of its kind."
    ),
    "steps": (
        "How long the steps of the pipeline took. A step is a block with `dasfprof.step`, a Dask "
        "``span``, an annotation ``step``, or a node of a DASF ``Pipeline``."
    ),
    "balance": (
        "How evenly a run used its workers, what it transferred, and how large clusters and chunks "
        "should be."
    ),
    "reports": (
        "The reports of parallel-run services, with the labels of Azure's ParallelRunStep. Its "
        "mini-batch is a task here, its process is a worker, and its ``run()`` is the task's "
        "function."
    ),
    "predictions": (
        "How long a run would have taken under other conditions. A replay simulates Dask's "
        "scheduler and workers with the recorded graph and durations, Dask's placement rules, and "
        "the measured times of transfers, messages and the scheduler. There is no prediction if a "
        "replay on the recorded cluster misses the recorded wall time by more than 15 %, or if "
        "tasks waited for CPU for at least 10 % of their time. Predictions assume that tasks take "
        "the same time on another cluster, so hosts need a core for each additional computing "
        "thread."
    ),
    "events": "What user code recorded.",
}

#: Name of a parameter that the analyser passes, and not the user.
_PROGRESS = "progress"


@dataclass(frozen=True)
class Question:
    """An analysis and its position in commands and reports. As a decorator, it registers itself."""

    #: Heading of its table.
    title: str
    group: Group
    #: Alternative short name for commands, or None.
    short: str | None = None
    #: Position in the default output of ``dasfprof analyse``, or None if it is not in this output.
    overview: int | None = None
    #: Columns that are left out if a terminal is narrow.
    expendable: tuple[str, ...] = ()
    #: Name of its table in the HTML report, or None if the report has no such table.
    page: str | None = None
    #: Name of its CSV file without the extension. By default, the method's name without ``per_``.
    csv: str = ""
    #: Data that the table is about: the name of a table of `Trace` that must have rows, or a
    #: function that returns whether the data exist. None if the analysis is possible for every
    #: trace.
    needs: str | Callable[[Run], bool] | None = None
    #: How to compute the table in time windows, or None if it needs the complete run in memory.
    in_parts: InParts | Literal["no parts"] | None = None
    #: The function that computes the table from a run and the arguments.
    answer: Callable[..., pd.DataFrame] = pd.DataFrame

    def __call__(self, answer: Answer) -> Answer:
        """Register a function as the one that computes the table."""
        _REGISTERED.append(replace(self, answer=answer))
        return answer

    @property
    def name(self) -> str:
        """Name of the method of `TraceAnalyser`."""
        return self.answer.__name__

    @property
    def file_stem(self) -> str:
        """Name of the table's CSV file without the extension."""
        return self.csv or self.name.removeprefix("per_")

    @cached_property
    def signature(self) -> inspect.Signature:
        """Parameters of the method of `TraceAnalyser` without ``self``."""
        signature = inspect.signature(self.answer, eval_str=True)
        _, *parameters = signature.parameters.values()
        return signature.replace(parameters=[item for item in parameters if item.name != _PROGRESS])

    @property
    def takes_progress(self) -> bool:
        """Whether the function can show a progress bar."""
        return _PROGRESS in inspect.signature(self.answer).parameters

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return (inspect.getdoc(self.answer) or "").partition("\n")[0]

    @property
    def call(self) -> str:
        """Text of the call: the name with its parameters and defaults."""
        parameters = []
        for item in self.signature.parameters.values():
            choices = get_args(item.annotation) if item.name == "by" else ()
            value = "|".join(map(repr, choices)) or repr(item.default)
            parameters.append(item.name if item.default is item.empty else f"{item.name}={value}")
        return f"{self.name}({', '.join(parameters)})"

    @property
    def needs_arguments(self) -> bool:
        """Whether the analysis has required parameters."""
        parameters = self.signature.parameters.values()
        return any(item.default is item.empty for item in parameters)

    @property
    def further_groupings(self) -> tuple[str, ...]:
        """All values of ``by`` except the default value."""
        by = self.signature.parameters.get("by")
        return () if by is None else tuple(x for x in get_args(by.annotation) if x != by.default)

    def applies(self, run: Run) -> bool:
        """Return whether the trace has the data that the analysis is about, such as steps."""
        if isinstance(self.needs, str):
            return len(getattr(run, self.needs)) > 0
        return self.needs is None or self.needs(run)

    def bind(self, *args: Any, **arguments: Any) -> dict[str, Any]:
        """Return the arguments by name.

        Raises
        ------
        InvalidArgumentError
            If an argument is unknown or missing, or ``by`` is invalid.
        """
        try:
            named = dict(self.signature.bind(*args, **arguments).arguments)
        except TypeError as error:
            raise InvalidArgumentError(
                f"{self.name}: {error}; its arguments are {self.signature}"
            ) from None
        by = self.signature.parameters.get("by")
        if by is not None and named.get("by", by.default) not in get_args(by.annotation):
            raise InvalidArgumentError(
                f"by={named['by']!r}: expected one of {', '.join(get_args(by.annotation))}."
            )
        return named


@dataclass(frozen=True)
class Request:
    """An analysis with the arguments of one call, by name."""

    question: Question
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file_stem(self) -> str:
        """Name of the CSV file without its extension. It contains the arguments."""
        words = [self.question.file_stem]
        for name, value in self.arguments.items():
            words += [name, re.sub(r"[^\w.-]+", "-", str(value)).strip("-")]
        return "_".join(words)

    def table(self, analyser: Any) -> pd.DataFrame:
        """Return the table that a `TraceAnalyser` computes."""
        return getattr(analyser, self.question.name)(**self.arguments)


_REGISTERED: list[Question] = []
question = Question


@cache
def all() -> tuple[Question, ...]:
    """Return all questions, sorted by group, then by module, then as in the module."""
    from dasfprof.analysis import tables

    for module in pkgutil.iter_modules(tables.__path__):
        importlib.import_module(f"{tables.__name__}.{module.name}")
    order = list(GROUPS)
    # Sort, because modules that were imported earlier must not change the order.
    return tuple(sorted(_REGISTERED, key=lambda q: (order.index(q.group), q.answer.__module__)))


def overview(run: Run) -> list[Question]:
    """Return the analyses that ``dasfprof analyse`` prints by default, if their data exist."""
    shown = [item for item in all() if item.overview is not None and item.applies(run)]
    return sorted(shown, key=lambda item: item.overview or 0)


def named(name: str) -> Question:
    """Return the question with this name.

    `name` is the name of its method (with underscores or hyphens), its short name, or the name of
    its CSV file without the extension.

    Raises
    ------
    InvalidArgumentError
        If there is no such question.
    """
    for item in all():
        if name.replace("-", "_") == item.name or name in (item.short, item.file_stem):
            return item
    names = ", ".join(item.name for item in all())
    raise InvalidArgumentError(f"There is no question {name!r}; there are {names}.")


def parse(text: str) -> Request:
    """Parse a question with arguments in Python syntax, such as ``task_counts(interval=1.0)``.

    Only literals are evaluated.

    Raises
    ------
    InvalidArgumentError
        If the question or an argument does not exist, or the text has another form.
    """
    if re.fullmatch(r"\w+(-\w+)+", text.strip()):
        question = named(text.strip())
        return Request(question, question.bind())
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        call = tree if isinstance(tree, ast.Call) else None
        name = call.func if call is not None else tree
        args = [ast.literal_eval(item) for item in call.args] if call else []
        keywords = call.keywords if call else []
        arguments = {str(item.arg): ast.literal_eval(item.value) for item in keywords}
    except (SyntaxError, ValueError):
        name, arguments = None, {}
    if not isinstance(name, ast.Name) or "None" in arguments:  # None stands for **mapping.
        raise InvalidArgumentError(
            f"{text!r} is not a question. Pass a name, with or without arguments, such as "
            "time_accounting or task_counts(interval=1.0)."
        )
    question = named(name.id)
    return Request(question, question.bind(*args, **arguments))
