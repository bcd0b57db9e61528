"""Processes of Dask's commands, for tests that kill them."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from clusters import is_written, wait_until
from distributed import Client, Security

#: Directory of test modules, which workers import too.
PATHS = os.pathsep.join(
    [*map(str, Path(__file__).parents[:2]), *filter(None, [os.environ.get("PYTHONPATH")])]
)

#: Mounts a file system at a path, and runs a program. The first argument is the mount's type.
MOUNT = 'mount $0 "$1" && shift && exec "$@"'

#: Runs when Python starts, and prevents imports of dasfprof in that process.
NOT_INSTALLED = "import sys; sys.modules['dasfprof'] = None"


class Processes:
    """Processes of Dask's commands. Remaining processes are killed at the end."""

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
        apart: tuple[str, ...] = (),
        path: str = PATHS,
        stdin: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start Python, with a separate disk at `disk` if given, which is lost unless `stored`."""
        if disk:
            mounted = f"--bind {stored}" if stored else f"-t tmpfs -o size={size} none"
            apart = ("unshare", "--mount", "sh", "-c", MOUNT, mounted, str(disk))
        process = subprocess.Popen(
            [*apart, sys.executable, *arguments],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": path, **self.variables},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.running.append(process)
        return process

    def cluster(self, *nannies: bool) -> tuple[Any, list[Any]]:
        """Start a scheduler and a worker for each item, with or without a nanny."""
        scheduler = self.scheduler()
        return scheduler, [self.worker(nanny) for nanny in nannies]

    def scheduler(self, *options: str, **disk: Any) -> subprocess.Popen[bytes]:
        command = "-m", "distributed.cli.dask_scheduler", *self._common, "--port=0", *options
        process = self.start(*command, **disk)
        wait_until(partial(is_written, self.scheduler_file))
        return process

    def worker(self, nanny: bool = False, **disk: Any) -> subprocess.Popen[bytes]:
        options = ("--nthreads", "1", "--nanny" if nanny else "--no-nanny")
        return self.start("-m", "distributed.cli.dask_worker", *self._common, *options, **disk)

    @property
    def _common(self) -> tuple[str, ...]:
        return "--scheduler-file", str(self.scheduler_file), "--no-dashboard"

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
            for stream in filter(None, (process.stdin, process.stdout)):
                stream.close()

    def client(self) -> Client:
        return Client(scheduler_file=str(self.scheduler_file), timeout=120)


def may_mount(directory: Path) -> bool:
    """Return whether this user may mount a separate disk for a process."""
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(directory)]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def certificates(place: Path) -> Security:
    """Create a certificate for all processes of a cluster."""
    key, certificate = str(place / "key.pem"), str(place / "certificate.pem")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=dask -keyout"
    subprocess.run([*command.split(), key, "-out", certificate], check=True, capture_output=True)
    files = {"tls_ca_file": certificate}
    for role in ("client", "scheduler", "worker"):
        files |= {f"tls_{role}_cert": certificate, f"tls_{role}_key": key}
    return Security(require_encryption=True, **files)


def tls_variables(place: Path) -> dict[str, str]:
    """Return environment variables with which all processes of a cluster use only TLS."""
    security = certificates(place)
    comm = {"REQUIRE_ENCRYPTION": "True", "DEFAULT_SCHEME": "tls"}
    comm["TLS__CA_FILE"] = security.tls_ca_file
    for role in ("client", "scheduler", "worker"):
        for file in ("cert", "key"):
            comm[f"TLS__{role}__{file}".upper()] = getattr(security, f"tls_{role}_{file}")
    return {f"DASK_DISTRIBUTED__COMM__{name}": value for name, value in comm.items()}
