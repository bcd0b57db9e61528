"""What findings advise, done: the run gets faster by at least half of what was promised."""

from __future__ import annotations

from pathlib import Path

import pytest

for library in ("dask_ml", "lightgbm", "numba", "sklearn", "xarray", "tomllib"):
    pytest.importorskip(library, reason="the extra `corpus` is not installed, or Python is < 3.11")

from advised import advised_programs, compare  # noqa: E402
from run import BUSY  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("name", advised_programs())
def test_half_of_what_was_promised_is_gained(name: str, tmp_path: Path) -> None:
    done = compare(name, tmp_path, times=3)
    kept = done.promised > 0 and done.gained >= done.promised / 2
    if done.busy_elsewhere > BUSY and not kept:
        pytest.skip(f"other programs used {done.busy_elsewhere:.0%} of the cores: {done}")
    assert kept, done
