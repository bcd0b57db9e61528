"""The pytest fixture `dasfprof_run`, which profiles a block of a test.

The test can then make assertions about the profiled run. pytest loads this module in every session
of an environment that has dasfprof. Therefore the module imports other modules of dasfprof only
when the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from distributed import Client

    from dasfprof.analysis.comparison.runs import Sources
    from dasfprof.handles.analyser import TraceAnalyser

_OPTION = "dasfprof_traces"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the directory in which the runs of tests are stored."""
    parser.getgroup("dasfprof").addoption(
        "--dasfprof-traces",
        dest=_OPTION,
        metavar="DIR",
        help="store the runs that `dasfprof_run` records in DIR, one directory per test",
    )


class ProfiledTest:
    """The run that a block of `dasfprof_run` has recorded. Use it after the block has ended."""

    def __init__(self, directory: Path) -> None:
        #: Directory of the run's files.
        self.directory = directory
        self._analyser: TraceAnalyser | None = None

    @property
    def analyser(self) -> TraceAnalyser:
        """The analyser of the run, for analyses that are not methods of this class."""
        if self._analyser is None:
            from dasfprof.handles.analyser import TraceAnalyser

            self._analyser = TraceAnalyser(self.directory, progress=False)
        return self._analyser

    @property
    def seconds(self) -> float:
        """The wall time in seconds from the first submission of a task to the last task's end."""
        from dasfprof.analysis.model.critical_path import path_seconds

        return path_seconds(self.analyser.run)

    def time_in(self, name: str) -> float:
        """Return the total duration of all task runs of a function or step, in seconds.

        The durations are summed over all threads.

        Raises
        ------
        InvalidArgumentError
            If no function or step with this name ran. Without this error, a test with a misspelt
            name would always pass.
        """
        import numpy as np

        from dasfprof.analysis.model.steps import step_groups
        from dasfprof.errors import InvalidArgumentError

        tasks = self.analyser.trace.tasks
        codes, steps = step_groups(tasks)
        is_step = np.array([step == name or step.startswith(f"{name}/") for step in steps])
        selected = (tasks["function"] == name).to_numpy(dtype=bool) | is_step[codes]
        if not selected.any():
            names = sorted({*tasks["function"].astype(str), *steps[:-1]})
            raise InvalidArgumentError(
                f"no function or step {name!r} ran. Functions and steps of this run: "
                f"{', '.join(names) or 'none'}."
            )
        return float(tasks["duration"].to_numpy(dtype=float)[selected].sum())

    def assert_no_finding(self, severity: str = "high") -> None:
        """Fail the test if a finding has at least this severity."""
        from dasfprof.analysis.diagnosis.registry import SEVERITIES
        from dasfprof.errors import InvalidArgumentError

        if severity not in SEVERITIES:
            raise InvalidArgumentError(
                f"severity={severity!r}: expected one of {', '.join(SEVERITIES)}."
            )
        severities = SEVERITIES[: SEVERITIES.index(severity) + 1]
        findings = self.analyser.diagnose()
        severe = findings[findings["Severity"].isin(severities)]
        lines = severe["Severity"] + ": " + severe["Finding"] + " " + severe["Suggestion"]
        assert not len(severe), "\n".join(lines)

    def assert_not_slower(
        self, baseline: Sources, limit: float = 0.1, *, others: Iterable[ProfiledTest] = ()
    ) -> None:
        """Fail the test if the run is certainly slower than the baseline by more than a fraction.

        The result of a comparison with a single run is never certain, because a single run may be
        an outlier.

        Parameters
        ----------
        baseline
            The runs to compare with, as an argument of `dasfprof.compare`. A directory with five
            runs of the same test is best. ``--dasfprof-traces`` writes such a directory.
        limit
            The fraction by which the run may be slower, such as 0.1 for 10 %.
        others
            Further runs of the same computation, profiled in the same test.
        """
        from dasfprof import compare
        from dasfprof.analysis.comparison import check_slower

        comparison = compare(baseline, [run.analyser for run in (self, *others)])
        gate = check_slower(comparison, limit)
        assert not gate.is_closed, f"{gate.text} {comparison}"


Profile = Callable[..., AbstractContextManager[ProfiledTest]]


@pytest.fixture
def dasfprof_run(request: pytest.FixtureRequest, tmp_path: Path) -> Profile:
    """Profile a block of the test:

    ``with dasfprof_run(client) as run: ...``. If no client is passed, Dask's current client is
    profiled. Use the run after the block: ``run.time_in("shuffle")``,
    ``run.assert_no_finding("high")``, ``run.assert_not_slower("baseline", 0.1, others=runs)``,
    ``run.analyser``.
    """
    traces = request.config.getoption(_OPTION, None)
    name = "".join(sign if sign.isalnum() else "_" for sign in request.node.name)
    root = Path(traces) / name if traces else tmp_path / "dasfprof"

    @contextmanager
    def profiled(client: Client | None = None) -> Iterator[ProfiledTest]:
        from distributed import default_client

        from dasfprof import profile

        number = 0
        while (directory := root / str(number)).exists():
            number += 1
        directory.mkdir(parents=True)
        with profile(client or default_client(), name, directory=directory):
            yield ProfiledTest(directory)

    return profiled
