"""`once_per_trace`: what several analyses rest on is worked out once for each trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from dasfprof.analysis.trace import Trace

Result = TypeVar("Result")


def once_per_trace(analysis: Callable[[Trace], Result]) -> Callable[[Trace], Result]:
    """Keep the answer of an analysis as long as the trace lives.

    All who ask get the same object: nobody may change it.
    """
    # Traces are pickled with what is known of them, so names stand for the analyses.
    name = f"{analysis.__module__}.{analysis.__qualname__}"

    @wraps(analysis)
    def known(trace: Trace) -> Result:
        answers: dict[str, Any] = vars(trace).setdefault("_answers", {})
        if name not in answers:
            answers[name] = analysis(trace)
        return cast("Result", answers[name])

    return known
