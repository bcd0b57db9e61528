"""The questions that are answered of runs beyond memory."""

from __future__ import annotations

from collections.abc import Iterator

from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.in_parts import InParts


def requests() -> Iterator[questions.Request]:
    """All questions that are answered part by part, by all that they can be grouped by."""
    for question in questions.all():
        how = question.in_parts
        if how is None:
            continue
        yield questions.Request(question)
        for by in question.further_groupings:
            if not isinstance(how, InParts) or how.take({"by": by}):
                yield questions.Request(question, {"by": by})
