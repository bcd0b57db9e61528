"""Whether functions get slower as the run goes on, and where the time goes then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.model.degradation import Trends, find_trends, trend_rows
from dasfprof.analysis.tables.in_parts import InParts, joined_rows
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import flags, text
from dasfprof.analysis.trace import Trace

#: The labels of what is compared with time.
_LABELS = {
    "run": "Run Method Seconds",
    "elapsed": "Elapsed Seconds",
    "cpu": "Process Seconds",
    "input_size": "Input Size",
}


def _rows(trace: Trace) -> pd.DataFrame:
    return trend_rows(find_attempts(trace))


def _combined(_: Trace, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return _table(find_trends(joined_rows(parts)))


@question(
    "Functions that get slower as the run goes on", "reports", in_parts=InParts(_rows, _combined)
)
def degradation(trace: Trace) -> pd.DataFrame:
    """Test whether each function gets slower as the run goes on, by the steps of the guide.

    Returns
    -------
    DataFrame
        A row a function, the most seconds in it first:

        - ``Function``, ``Attempts`` (those that succeeded; no others count here)
        - ``Count Falling``: fewer of them start in equal times
        - ``Run Method Seconds Rising``, ``Elapsed Seconds Rising``, ``Process Seconds
          Rising``, ``Input Size Rising``
        - ``Count Last/First Third``, ``Run Method Seconds Last/First Third`` and so on: the
          last third of its attempts by the first
        - ``Verdict``: what follows, in words

        A quantity rises if its rank correlation with time is 0.6 at least and its last third
        1.3 times its first; a number falls by the same measure. NA stands for fewer than 12
        attempts, or where no file tells.
    """
    return _table(find_trends(_rows(trace)))


def _table(trends: Trends) -> pd.DataFrame:
    change = {label: trends.change[name] for name, label in _LABELS.items()}
    rising = {
        f"{label} Rising": flags(trends.rises[name], ~np.isnan(trends.change[name]))
        for name, label in _LABELS.items()
    }
    table = pd.DataFrame(
        {
            "Function": text(trends.functions),
            "Attempts": trends.attempts,
            "Count Falling": flags(trends.count_falls, ~np.isnan(trends.count_change)),
            **rising,
            "Count Last/First Third": trends.count_change,
            **{f"{label} Last/First Third": values for label, values in change.items()},
            "Verdict": text(trends.verdicts),
        }
    )
    return table.take(trends.order).reset_index(drop=True)
