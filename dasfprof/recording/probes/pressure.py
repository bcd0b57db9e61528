"""How long a host's tasks were held up for want of CPU, memory or I/O: Linux's pressure totals.

Each file under ``/proc/pressure`` counts the microseconds since boot in which some of the host's
tasks waited for the resource, and in which all that had work did so at a time ("full"; of CPU the
kernel has none for a whole host). The totals are of the host, seen from a container too. See
https://docs.kernel.org/accounting/psi.html.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from dasfprof.schema.resources import HOST_PRESSURE

#: The resources, each a file.
_RESOURCES = ("cpu", "memory", "io")

#: The totals that are recorded.
_RECORDED = frozenset(column.name for column in HOST_PRESSURE)

#: More than two lines of four numbers.
_LENGTH = 256


class HostPressure:
    """Reads the totals through descriptors that it keeps: the kernel makes the text at each read.

    Parameters
    ----------
    directory
        Where the files are.
    """

    def __init__(self, directory: Path = Path("/proc/pressure")) -> None:
        self._descriptors: dict[str, int] = {}
        #: ``available``, or why there are no totals.
        self.availability = "available"
        try:
            for name in _RESOURCES:
                self._descriptors[name] = os.open(directory / name, os.O_RDONLY | os.O_CLOEXEC)
                os.pread(self._descriptors[name], _LENGTH, 0)
        except OSError as error:  # no Linux, or one that was built or started without it
            self.availability = f"{directory}: {error.strerror}"
            self.close()

    def totals(self) -> dict[str, float]:
        """Return seconds since boot, by the names of the columns; without what is not told."""
        told = {}
        for name, descriptor in self._descriptors.items():
            for line in os.pread(descriptor, _LENGTH, 0).decode().splitlines():
                kind, _, rest = line.partition(" ")
                column = f"host_{name}_pressure.{kind}"
                if column in _RECORDED:
                    with contextlib.suppress(ValueError):  # not a line as it should be
                        told[column] = int(rest.rpartition("total=")[2]) * 1e-6
        return told

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
