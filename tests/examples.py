"""Number of examples that random tests draw."""

from hypothesis import settings

#: Hypothesis' default number of examples, which the profile "long" uses. Workers that import a test
#: module always use this profile.
_DEFAULT = 100


def examples(count: int, long: int | None = None) -> settings:
    """Return the settings of a random test that draws ``count`` examples.

    With ``--long`` it draws ``long`` of them, or three times as many.
    """
    short = settings.default.max_examples < _DEFAULT
    return settings(max_examples=count if short else long or 3 * count)
