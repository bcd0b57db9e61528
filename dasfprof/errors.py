"""Errors that dasfprof raises, all derived from `DasfprofError`.

::

    DasfprofError
     ├── InvalidArgumentError   (also a ValueError)  a value that the call does not accept
     │    └── UnknownOptionError   (also a TypeError)  an option that the call does not have
     ├── DoesNotFit             (also a MemoryError)  a graph that needs too much memory
     ├── DumpError              (also a ValueError)  a dump of a cluster that cannot be read
     ├── NoSchedulerError       (also a ConnectionError)  no Dask scheduler at an address
     ├── RegistrationError      the profiler could not be registered
     │    └── NoClientError     there is no Dask client to profile
     ├── TraceError             a trace that cannot be used
     │    ├── SourceNotFoundError  (also a FileNotFoundError)  a source without a trace file
     │    ├── NotATraceError       a file that is not a trace of dasfprof or DASF
     │    └── BeyondMemoryError    (also a MemoryError)  an analysis that needs too much memory
     ├── TrialError             a program that cannot be tested in a trial
     ├── CannotWriteError       (also an OSError)  a file that cannot be created
     ├── ReadOnlyError          recording into a database that was opened to read, or closed
     └── MissingExtraError      (also an ImportError)  an optional library is not installed

Each message contains the value that was received, the values that are valid, and what to do next.
Damage inside a trace does not raise an error: readers return the intact events and report the
damage (see `dasfprof.database.reader`).
"""

from __future__ import annotations


class DasfprofError(Exception):
    """Base class of all errors that dasfprof raises itself."""


class InvalidArgumentError(DasfprofError, ValueError):
    """An argument has a value that the call does not accept."""


class UnknownOptionError(InvalidArgumentError, TypeError):
    """A call does not have an option of this name."""


class DoesNotFit(DasfprofError, MemoryError):  # noqa: N818  (it reads as a sentence)
    """A graph needs more memory than a worker has. See `dasfprof.estimate`.

    Attributes
    ----------
    layer
        The layer that needs the most memory.
    line
        The line that built this layer, such as ``"pipeline.py:12"``, or None if unknown.
    """

    def __init__(self, message: str, layer: str | None = None, line: str | None = None) -> None:
        super().__init__(message)
        self.layer, self.line = layer, line


class NoSchedulerError(DasfprofError, ConnectionError):
    """No process listens at an address, or the process that listens is not a Dask scheduler."""


class DumpError(DasfprofError, ValueError):
    """A file is not a dump of a cluster, or is damaged or too large."""


class RegistrationError(DasfprofError):
    """The profiler could not be registered with the cluster. No part of it remains registered."""


class NoClientError(RegistrationError):
    """The object to profile has no Dask client, so there is no cluster to profile."""


class TraceError(DasfprofError):
    """A trace cannot be used."""


class SourceNotFoundError(TraceError, FileNotFoundError):
    """The source contains no trace file."""


class NotATraceError(TraceError):
    """A file is neither a dasfprof nor a DASF trace."""


class BeyondMemoryError(TraceError, MemoryError):
    """An analysis needs the complete run in memory, but it does not fit."""


class ReadOnlyError(DasfprofError):
    """An event was recorded into a database that was opened for reading, or that was closed."""


class TrialError(DasfprofError):
    """A program cannot be tested in a trial.

    It fails even without a change, does not end, or computes nothing that can be recorded.
    """


class CannotWriteError(DasfprofError, OSError):
    """A trace file cannot be created at the requested path."""


class MissingExtraError(DasfprofError, ImportError):
    """An optional library is not installed. The message names the extra that installs it."""
