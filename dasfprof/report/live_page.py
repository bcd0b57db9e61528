"""``python -m dasfprof.report.live_page FILES``: answers each line of its input with a run's state.

The page on Dask's dashboard asks it, so that the scheduler's process reads no trace and imports no
library for it. It ends with its input.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dasfprof.analysis.live import LiveRun
from dasfprof.report.json_text import json_of
from dasfprof.report.live_html import state_html


def main() -> None:
    """Answer until the input ends; each answer is one line of JSON, ``state`` and ``html``."""
    run = LiveRun([Path(name) for name in sys.argv[1:]])
    for _ in sys.stdin:
        state = run.read()
        answer = {"state": state.document(), "html": state_html(state)}
        sys.stdout.write(json_of(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
