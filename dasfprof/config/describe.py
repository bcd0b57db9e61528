"""Settings as text: ``python -m dasfprof.config.describe`` writes `dasfprof.yaml` anew."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from dasfprof.config.kinds import Option
from dasfprof.config.options import SETTINGS

#: Where the defaults stand for readers; they are never read from there.
YAML = Path(__file__).parents[1] / "dasfprof.yaml"


def as_yaml() -> str:
    """Return all settings with their meanings and defaults, as Dask's config is written."""
    import yaml

    lines = [
        "# Settings of dasfprof in Dask's config, with their defaults.",
        "# Written by `python -m dasfprof.config.describe`.",
        "dasfprof:",
    ]
    for option in SETTINGS.values():
        lines += textwrap.wrap(option.meaning, 98, initial_indent="  # ", subsequent_indent="  # ")
        lines.append("  " + yaml.safe_dump({option.config_name: option.default}).rstrip())
    return "\n".join(lines) + "\n"


def as_parameters(options: Iterable[Option]) -> str:
    """Return options as a docstring lists parameters."""
    return "\n".join(
        f"{option.name}\n{textwrap.indent(textwrap.fill(option.meaning, 92), '    ')}"
        for option in options
    )


if __name__ == "__main__":
    YAML.write_text(as_yaml(), encoding="utf-8")
