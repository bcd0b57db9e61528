"""`once_per_trace`: what several analyses rest on is worked out once for each trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast

from dasfprof.analysis.trace import Trace

Result = TypeVar("Result")


def once_per_trace(analysis: Callable[[Trace], Result]) -> Callable[[Trace], Result]:
    """Keep the answer of an analysis as long as the trace lives.

    All who ask get the same object: nobody may change it. Several threads may ask at a time.
    """
    # No two of these wait for each other: what an analysis rests on does not rest on it.
    lock = RLock()

    @wraps(analysis)
    def known(trace: Trace) -> Result:
        answers, name = _answers(trace), _name(analysis)
        if name not in answers:
            with lock:
                if name not in answers:
                    answers[name] = analysis(trace)
        return cast("Result", answers[name])

    return known


def tell(trace: Trace, analysis: Callable[[Trace], Result], answer: Result) -> None:
    """Set the answer of an analysis: that of the run of which the trace is a part."""
    _answers(trace)[_name(analysis)] = answer


def _name(analysis: Callable[[Trace], Any]) -> str:
    # Traces are pickled with what is known of them, so names stand for the analyses.
    return f"{analysis.__module__}.{analysis.__qualname__}"


def _answers(trace: Trace) -> dict[str, Any]:
    answers: dict[str, Any] = vars(trace).setdefault("_answers", {})
    return answers
