"""Real programs: each has the expected findings and none that its events contradict, and advice
saves at least half of the potential savings."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

for library in ("dask_ml", "h5py", "lightgbm", "numba", "sklearn", "xarray", "zarr", "tomllib"):
    pytest.importorskip(library, reason="the extra `corpus` is not installed, or Python is < 3.11")

from advised import advised_programs, compare  # noqa: E402
from expectations import Expectation, declaration  # noqa: E402
from refuters import refute  # noqa: E402
from run import BUSY, HEALTHY, Recorded, programs, record  # noqa: E402

#: Environment variables with a directory that a program needs, by program.
NEEDS = {"dasf_pipeline": "DASF_CHECKOUT"}

#: Programs that run without ``--long``, as in CI.
FEW = (
    *("array_rechunk", "dask_ml_kmeans", "error_seen", "killed_worker", "parquet_merge"),
    *("restarted", "retried_errors", "sklearn_joblib", "slow_imports", "small_partitions"),
    *("spilled_array", "two_clients", "word_count", "xarray_climate"),
)

Record = Callable[[str], Recorded]


@pytest.fixture(scope="module")
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Record]:
    """Return a function that runs a program when it is first called."""
    given = request.config.getoption("--corpus-traces")
    directory = Path(given).absolute() if given else tmp_path_factory.mktemp("corpus")
    done: dict[str, Recorded] = {}

    def get(name: str) -> Recorded:
        if not os.environ.get(NEEDS.get(name, "PATH")):
            pytest.skip(f"{NEEDS[name]} is not set")
        if name not in done:
            done[name] = record(name, directory)
        return done[name]

    yield get


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in FEW else [pytest.mark.slow]


PROGRAMS = [pytest.param(name, marks=marks_of(name)) for name in programs()]


def cases() -> Iterator[object]:
    for name in programs():
        for expectation in declaration(name).expectations:
            wrong, strict = expectation.wrong_today, not expectation.sometimes
            marks = [pytest.mark.xfail(reason=wrong, strict=strict)] if wrong else []
            marks += marks_of(name)
            yield pytest.param(name, expectation, marks=marks, id=f"{name}-{expectation}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_ends_as_it_should(name: str, recorded: Record) -> None:
    done = recorded(name)
    assert done.exit_code == declaration(name).exit_code, done.printed
    assert "rule-failed" not in done.findings["Rule"].tolist()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_run_itself_contradicts_no_finding(name: str, recorded: Record) -> None:
    done = recorded(name)
    against = refute(done.directory, done.analyser.findings())
    assert not against, "\n".join(against)


@pytest.mark.parametrize(("name", "expectation"), list(cases()))
def test_what_is_found(name: str, expectation: Expectation, recorded: Record) -> None:
    done = recorded(name)
    holds = expectation.holds(done.findings, busy=done.busy_elsewhere > BUSY)
    if done.busy_elsewhere > BUSY and holds == bool(expectation.wrong_today):
        pytest.skip(f"other programs used {done.busy_elsewhere:.0%} of the cores")
    columns = ["Severity", "Rule", "Finding", "Evidence", "Suggestion"]
    assert holds, f"{expectation.why}\n{done.findings[columns].to_string(max_colwidth=None)}"


@pytest.mark.slow
@pytest.mark.parametrize("name", programs(HEALTHY))
def test_a_healthy_program_has_no_finding_above_low(name: str, recorded: Record) -> None:
    done = recorded(name)
    severe = done.findings[done.findings["Severity"].isin(["high", "medium"])]
    if done.busy_elsewhere > BUSY and len(severe):
        pytest.skip(f"other programs used {done.busy_elsewhere:.0%} of the cores")
    assert not len(severe), severe.to_string(max_colwidth=None)


@pytest.mark.slow
@pytest.mark.parametrize("name", advised_programs())
def test_half_of_what_was_promised_is_gained(name: str, tmp_path: Path) -> None:
    done = compare(name, tmp_path, times=3)
    kept = done.promised > 0 and done.gained >= done.promised / 2
    if done.busy_elsewhere > BUSY and not kept:
        pytest.skip(f"other programs used {done.busy_elsewhere:.0%} of the cores: {done}")
    assert kept, done
