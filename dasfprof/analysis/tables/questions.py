"""The questions that a recorded run can be asked, each registered once.

A question is a function that takes a `Run` and returns a DataFrame, in a module of this package,
under the decorator `question`. Its name, signature and docstring are those of the method of
`TraceAnalyser`; what the decorator takes says where else it is shown. Faces read the registry:

>>> from dasfprof.analysis.tables import questions
>>> [question.name for question in questions.all()]  # doctest: +SKIP
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal, Protocol, TypeVar, get_args

import pandas as pd
from pandas.api.types import union_categoricals

from dasfprof.analysis.run import Run
from dasfprof.errors import InvalidArgumentError

# --- `InParts`: how a question is answered of a run that does not fit into memory -----------------


@dataclass(frozen=True)
class InParts:
    """How a question is answered of a run that does not fit into memory.

    The functions take the question's arguments by name, as far as they were given.
    """

    #: What a part of the run tells: small, and able to travel between processes.
    of_part: Callable[..., Any]
    #: Takes a trace without task runs and transfers, and what all parts told.
    combine: Callable[..., pd.DataFrame]
    #: Puts what two parts told together, where that is less than both; None: it is not.
    fold: Callable[[Any, Any], Any] | None = None
    #: The values of `by` that can be answered so; empty: there are none, or all can.
    by: tuple[str, ...] = ()

    def take(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a question with these arguments can be answered so."""
        return not self.by or arguments.get("by", self.by[0]) in self.by


#: Of questions about samples and other facts that are in memory even then.
NO_PARTS: Literal["no parts"] = "no parts"


def joined_rows(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Put rows of parts together; columns of categories stay such."""
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

#: The groups of questions in their order, and what each is about.
GROUPS: dict[Group, str] = {
    "diagnosis": "What is wrong with a run, and what to change.",
    "time": "Where the time of a run went, and what it depended on.",
    "lines": (
        "Which lines of the program took the time: those that built the work, and, by samples of "
        "stacks, those that ran: a sample stands for the time since the last look of its kind."
    ),
    "steps": (
        "What the steps of the pipeline took. A step is what `dasfprof.step`, Dask's ``span`` or "
        "an annotation ``step`` is named, or a node of a DASF ``Pipeline``."
    ),
    "balance": "How evenly a run used its workers, what it moved, and how large things should be.",
    "reports": (
        "The reports of parallel-run services. Their labels are those of Azure's ParallelRunStep, "
        "whose mini-batch is a task here, whose process is a worker, and whose ``run()`` is the "
        "task's function."
    ),
    "predictions": (
        "What a run would have taken under other circumstances, by a replay: a simulation of "
        "Dask's scheduler and workers with the recorded graph and durations, Dask's rules of "
        "placement, and what transfers, messages and the scheduler were measured to take. It is "
        "calibrated first: replayed on the recorded cluster, it must come within 15 % of the "
        "recorded wall time, or nothing is predicted. Nor is it where tasks waited for a core for "
        "10 % of their time or more. Tasks are taken to last as long on another cluster, so that "
        "hosts must have a core for each further thread that computes."
    ),
    "events": "What user code recorded.",
}

#: Set by the analyser, not by who asks.
_PROGRESS = "progress"


@dataclass(frozen=True)
class Question:
    """A question to a run; decorates the function that answers it, which registers it."""

    #: A heading for its table.
    title: str
    group: Group
    #: Its short name in the shell, if it has one; its full name serves as well.
    short: str | None = None
    #: Its place among what ``dasfprof analyse`` prints if nothing is asked for; None: not there.
    overview: int | None = None
    #: Columns that a narrow terminal can do without.
    expendable: tuple[str, ...] = ()
    #: The table of the HTML report that it fills; None: none.
    page: str | None = None
    #: The name of its CSV file, without ending; empty: the method's, without ``per_``.
    csv: str = ""
    #: What a trace has that it is about: the table of `Trace` that has rows, or a function that
    #: tells; None: any trace has it.
    needs: str | Callable[[Run], bool] | None = None
    #: How it is answered part by part; None: it needs the whole run in memory.
    in_parts: InParts | Literal["no parts"] | None = None
    #: The function that answers it: takes the run first.
    answer: Callable[..., pd.DataFrame] = pd.DataFrame

    def __call__(self, answer: Answer) -> Answer:
        """Register a function as what answers it."""
        _REGISTERED.append(replace(self, answer=answer))
        return answer

    @property
    def name(self) -> str:
        """The name of the method of `TraceAnalyser`."""
        return self.answer.__name__

    @property
    def file_stem(self) -> str:
        """The name of its CSV file, without ending."""
        return self.csv or self.name.removeprefix("per_")

    @cached_property
    def signature(self) -> inspect.Signature:
        """What may be asked for: the parameters of the method, without ``self``."""
        whole = inspect.signature(self.answer, eval_str=True)
        _, *parameters = whole.parameters.values()
        return whole.replace(parameters=[item for item in parameters if item.name != _PROGRESS])

    @property
    def takes_progress(self) -> bool:
        """Whether it can show a progress bar."""
        return _PROGRESS in inspect.signature(self.answer).parameters

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return (inspect.getdoc(self.answer) or "").partition("\n")[0]

    @property
    def call(self) -> str:
        """Its name with its parameters and their defaults."""
        parameters = []
        for item in self.signature.parameters.values():
            choices = get_args(item.annotation) if item.name == "by" else ()
            value = "|".join(map(repr, choices)) or repr(item.default)
            parameters.append(item.name if item.default is item.empty else f"{item.name}={value}")
        return f"{self.name}({', '.join(parameters)})"

    @property
    def needs_arguments(self) -> bool:
        """Whether it cannot be asked without arguments."""
        parameters = self.signature.parameters.values()
        return any(item.default is item.empty for item in parameters)

    @property
    def further_groupings(self) -> tuple[str, ...]:
        """What it takes as ``by``, less the default."""
        by = self.signature.parameters.get("by")
        return () if by is None else tuple(x for x in get_args(by.annotation) if x != by.default)

    def applies(self, run: Run) -> bool:
        """Return whether the trace has what it is about: without steps, no table of steps."""
        if isinstance(self.needs, str):
            return len(getattr(run, self.needs)) > 0
        return self.needs is None or self.needs(run)

    def of(self, analyser: Analyser, *args: Any, **arguments: Any) -> pd.DataFrame:
        """Ask it of an analyser.

        Raises
        ------
        InvalidArgumentError
            If an argument is unknown, or has no sensible value.
        """
        return getattr(analyser, self.name)(*args, **arguments)

    def bind(self, *args: Any, **arguments: Any) -> dict[str, Any]:
        """The arguments by name.

        Raises
        ------
        InvalidArgumentError
            If one is unknown, or missing, or ``by`` is none of what it can be.
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
                f"by={named['by']!r}: give one of {', '.join(get_args(by.annotation))}."
            )
        return named


class Analyser(Protocol):
    """What has the questions as methods: `TraceAnalyser`."""

    @property
    def run(self) -> Run:
        """The run in normal form."""


@dataclass(frozen=True)
class Request:
    """A question with its arguments, by name."""

    question: Question
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file_stem(self) -> str:
        """The name of its CSV file, without ending: the arguments are part of it."""
        words = [self.question.file_stem]
        for name, value in self.arguments.items():
            words += [name, re.sub(r"[^\w.-]+", "-", str(value)).strip("-")]
        return "_".join(words)

    def of(self, analyser: Analyser) -> pd.DataFrame:
        """Ask it of an analyser."""
        return self.question.of(analyser, **self.arguments)


_REGISTERED: list[Question] = []
question = Question


@cache
def all() -> tuple[Question, ...]:
    """All questions, by group, and in the order of their modules."""
    from dasfprof.analysis import tables

    for module in pkgutil.iter_modules(tables.__path__):
        importlib.import_module(f"{tables.__name__}.{module.name}")
    order = list(GROUPS)
    return tuple(sorted(_REGISTERED, key=lambda question: order.index(question.group)))


def overview(run: Run) -> list[Question]:
    """The questions that the shell answers if none is asked, where the trace has what it takes."""
    shown = [item for item in all() if item.overview is not None and item.applies(run)]
    return sorted(shown, key=lambda item: item.overview or 0)


def named(name: str) -> Question:
    """The question of a name: its method's, also with hyphens, its short one, or its CSV file's.

    Raises
    ------
    InvalidArgumentError
        If there is none.
    """
    for item in all():
        if name.replace("-", "_") == item.name or name in (item.short, item.file_stem):
            return item
    names = ", ".join(item.name for item in all())
    raise InvalidArgumentError(f"There is no question {name!r}; there are {names}.")


def parse(text: str) -> Request:
    """Read a question with arguments as Python has it: ``transfers("time", interval=1.0)``.

    Nothing is evaluated but literals.

    Raises
    ------
    InvalidArgumentError
        If there is no such question or argument, or the text is no name and no call with literals.
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
    if not isinstance(name, ast.Name) or "None" in arguments:  # of **mapping
        raise InvalidArgumentError(
            f"{text!r} is no question: write a name, or a name with arguments, such as "
            'time_accounting or transfers("time", interval=1.0).'
        )
    question = named(name.id)
    return Request(question, question.bind(*args, **arguments))
