"""Where an exception was raised is told by the last line of a traceback that is the user's own."""

from __future__ import annotations

import json
import traceback

import numpy as np
import pytest

from dasfprof.recording.task_runs.logs import raised_at


def in_a_library() -> None:
    json.loads("{")


def in_an_installed_one() -> None:
    np.ones(3).reshape(2)


def test_the_line_that_called_a_library() -> None:
    for function in (in_a_library, in_an_installed_one):
        code = function.__code__
        with pytest.raises(ValueError) as caught:
            function()
        text = "".join(traceback.format_tb(caught.tb)[1:])
        assert raised_at(text) == f"{__file__}:{code.co_firstlineno + 1} {code.co_name}"


def test_without_user_code_it_is_the_last_line() -> None:
    text = '  File "/x/site-packages/a.py", line 3, in outer\n    inner()\n'
    text += '  File "/x/site-packages/b.py", line 9, in inner\n    raise ValueError\n'
    assert raised_at(text) == "/x/site-packages/b.py:9 inner"
    assert [raised_at(text) for text in (None, "", "no traceback")] == [None] * 3
