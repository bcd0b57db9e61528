"""How many examples random tests draw."""

from __future__ import annotations

from hypothesis import settings

#: Number of examples of Hypothesis' own default, which the profile "long" has. Workers that import
#: a test's module have no other profile.
_DEFAULT = 100


def examples(count: int, long: int | None = None) -> settings:
    """Return the settings of a random test that draws ``count`` examples.

    With ``--long`` it draws ``long`` of them, or three times as many.
    """
    short = settings.default.max_examples < _DEFAULT
    return settings(max_examples=count if short else long or 3 * count)
