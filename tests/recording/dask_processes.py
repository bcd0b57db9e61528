"""Processes of Dask's own commands, for the tests that kill them."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import independent_record as record
from clusters import is_written
from distributed import Client, Security

#: Tests are imported by their workers too.
PATHS = os.pathsep.join(
    [*map(str, Path(__file__).parents[:2]), *filter(None, [os.environ.get("PYTHONPATH")])]
)

#: Mounts something at a path, and runs a program. The first argument says what is mounted.
MOUNT = 'mount $0 "$1" && shift && exec "$@"'


#: Run by Python as it starts: nothing of dasfprof can be imported in that process.
NOT_INSTALLED = """
import sys

class NotInstalled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "dasfprof":
            raise ModuleNotFoundError("No module named 'dasfprof'", name="dasfprof")

sys.meta_path.insert(0, NotInstalled)
"""


class Processes:
    """Processes of Dask's own commands; what is left of them is killed at the end."""

    def __init__(self, directory: Path, variables: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.variables = variables or {}
        self.scheduler_file = directory / "scheduler.json"
        self.running: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        *arguments: str,
        disk: Path | None = None,
        size: str = "64m",
        stored: Path | None = None,
        stdin: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start Python; with `disk` it has a separate disk there.

        The disk vanishes with the process, unless it is a directory, `stored`.
        """
        mounted = f"--bind {stored}" if stored else f"-t tmpfs -o size={size} none"
        apart = ["unshare", "--mount", "sh", "-c", MOUNT, mounted, str(disk)] if disk else []
        process = subprocess.Popen(
            [*apart, sys.executable, *arguments],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": PATHS, **self.variables},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.running.append(process)
        return process

    def cluster(self, *nannies: bool) -> tuple[Any, list[Any]]:
        """Start a scheduler, and a worker for each item, with a nanny or without."""
        scheduler = self.scheduler()
        return scheduler, [self.worker(nanny) for nanny in nannies]

    def scheduler(self, *options: str, **disk: Any) -> subprocess.Popen[bytes]:
        """Start a scheduler, and wait for it."""
        command = "-m", "distributed.cli.dask_scheduler", *self._common, "--port=0", *options
        process = self.start(*command, **disk)
        record.wait_until(partial(is_written, self.scheduler_file))
        return process

    def worker(self, nanny: bool = False, **disk: Any) -> subprocess.Popen[bytes]:
        """Start a worker of one thread."""
        options = ("--nthreads", "1", "--nanny" if nanny else "--no-nanny")
        return self.start("-m", "distributed.cli.dask_worker", *self._common, *options, **disk)

    @property
    def _common(self) -> tuple[str, ...]:
        return "--scheduler-file", str(self.scheduler_file), "--no-dashboard"

    def end(self) -> None:
        """Kill what is left."""
        for process in self.running:
            process.kill()
            process.wait()
            for stream in filter(None, (process.stdin, process.stdout)):
                stream.close()

    def client(self) -> Client:
        return Client(scheduler_file=str(self.scheduler_file), timeout=120)


def may_mount(directory: Path) -> bool:
    """Return whether this user may give a process a separate disk at a directory."""
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(directory)]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def is_alive(pid: int) -> bool:
    """Return whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def certificates(place: Path) -> Security:
    """Make a certificate that all processes of a cluster use."""
    key, certificate = place / "key.pem", place / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=dask", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    files = {"tls_ca_file": str(certificate)}
    for role in ("client", "scheduler", "worker"):
        files |= {f"tls_{role}_cert": str(certificate), f"tls_{role}_key": str(key)}
    return Security(require_encryption=True, **files)


def tls_variables(place: Path) -> dict[str, str]:
    """Return environment variables with which all processes of a cluster use TLS alone."""
    certificates(place)
    files = {"CERT": place / "certificate.pem", "KEY": place / "key.pem"}
    tls = {"CA_FILE": files["CERT"]} | {
        f"{role}__{name}": file
        for role in ("CLIENT", "SCHEDULER", "WORKER")
        for name, file in files.items()
    }
    comm = {"REQUIRE_ENCRYPTION": "True", "DEFAULT_SCHEME": "tls"}
    comm |= {f"TLS__{name}": str(file) for name, file in tls.items()}
    return {f"DASK_DISTRIBUTED__COMM__{name}": value for name, value in comm.items()}
