"""Runs in the formats of other tools, one module or package a format.

To add a format, write a module here that has a `FORMAT`, an `ExportFormat` of the module's name,
and put that name into `FormatName`. `dasfprof.export`, `TraceAnalyser.export`, ``dasfprof export``
and their help then have it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Literal, get_args

from dasfprof.report.formats.format import ExportFormat

__all__ = ["ExportFormat", "FormatName", "all_formats"]

#: The names of the formats, which are the names of their modules.
FormatName = Literal["perfetto", "chrome", "csv", "parquet", "speedscope", "collapsed"]


def all_formats() -> dict[str, ExportFormat]:
    """Return the formats by name."""
    return {name: import_module(f"{__name__}.{name}").FORMAT for name in get_args(FormatName)}
