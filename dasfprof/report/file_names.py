"""`file_for`: the name of a file that is written about a run, after the run's own name."""

from __future__ import annotations

from pathlib import Path

#: Signs of a run's name that a file's name keeps; others become dashes.
_SIGNS = "-_.+ "
_LONGEST = 200


def file_for(title: str, ending: str) -> Path:
    """Return a path in the working directory that is named after a run."""
    stem = "".join(sign if sign.isalnum() or sign in _SIGNS else "-" for sign in title)
    return Path(f"{stem.lstrip('.-')[:_LONGEST] or 'run'}{ending}")
