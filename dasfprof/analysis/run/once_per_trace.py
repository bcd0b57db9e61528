"""`once_per_trace`: what several analyses rest on is worked out once for each trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast

from dasfprof.analysis.trace import Trace

Result = TypeVar("Result")
#: A `Trace`, or the `Run` of one.
Form = TypeVar("Form", bound=Trace)

#: Stands for the trace itself as the answer, also after it was pickled.
_ITSELF = ...


def once_per_trace(analysis: Callable[[Form], Result]) -> Callable[[Form], Result]:
    """Keep the answer of an analysis as long as the trace lives.

    All who ask get the same object: nobody may change it. Several threads may ask at a time.
    """
    # No two of these wait for each other: what an analysis rests on does not rest on it.
    lock = RLock()

    @wraps(analysis)
    def known(trace: Form) -> Result:
        answers, name = _answers(trace), _name(analysis)
        if name not in answers:
            with lock:
                if name not in answers:
                    tell(trace, analysis, analysis(trace))
        answer = answers[name]
        return cast("Result", trace if answer is _ITSELF else answer)

    return known


def tell(trace: Form, analysis: Callable[[Form], Result], answer: Result) -> None:
    """Set the answer of an analysis: that of the run of which the trace is a part."""
    # A trace that held itself would stay in memory until the garbage collector looks.
    _answers(trace)[_name(analysis)] = _ITSELF if answer is trace else answer


def _name(analysis: Callable[[Form], Any]) -> str:
    # Traces are pickled with what is known of them, so names stand for the analyses.
    return f"{analysis.__module__}.{analysis.__qualname__}"


def _answers(trace: Trace) -> dict[str, Any]:
    answers: dict[str, Any] = vars(trace).setdefault("_answers", {})
    return answers
