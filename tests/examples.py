"""How many examples random tests draw."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int, long: int | None = None) -> settings:
    """Return the settings of a random test that draws ``count`` examples.

    With ``--long`` it draws ``long`` of them, or three times as many.
    """
    short = settings.default.max_examples < settings.get_profile("long").max_examples
    return settings(max_examples=count if short else long or 3 * count)
