"""Exceptions of functions in other processes, as Dask sends them."""

from __future__ import annotations

from typing import Any

from dasfprof.recording.dask_internals import names


def error_in(response: dict[str, Any]) -> BaseException:
    """Return the exception of a response whose status is ``error``, with its traceback."""
    clean = names.REMOTE_ERRORS.find("clean_exception")
    try:
        _, error, trace = clean(**response)
        found: BaseException = error.with_traceback(trace)
        return found
    except Exception:  # the name is missing, or its result has another form
        return RuntimeError(str(response.get("exception_text") or response.get("exception")))
