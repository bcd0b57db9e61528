"""Run programs under the profiler, each in a fork of a process that has imported Dask and dasfprof.

Reads a line of JSON for each program: its script, arguments, directory, and name. Writes a line of
JSON with the exit code and the CPU seconds of all its processes. Forked clients and workers start
in a tenth of a second, whereas spawned ones need some seconds for imports. Other libraries are
imported by the programs and their tasks, as usual. The profiler's report at the end is left out.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
import warnings
from typing import Any

import dask.array
import distributed  # noqa: F401

from dasfprof.cli import run as command
from dasfprof.cli.main import main as dasfprof

_PR_SET_CHILD_SUBREAPER = 36
#: Seconds after which remaining processes of a program are killed.
_PATIENCE = 20.0


def main() -> None:
    """Read requests until the input ends, and run each program in a fork."""
    # Orphaned workers become children of this process, so that their CPU time is known.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # The only threads are those of BLAS, which supports forks.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    for line in sys.stdin:
        asked, before = json.loads(line), _used()
        child = os.fork()
        if child == 0:
            _run(asked)
        status = _wait(child, asked["deadline"])
        _reap()
        answer = {"exit_code": os.waitstatus_to_exitcode(status), "cpu": _used() - before}
        print(json.dumps(answer), flush=True)


def _run(asked: dict[str, Any]) -> None:
    """Run a program as ``dasfprof run`` does, and exit with its exit code."""
    os.setsid()
    os.chdir(asked["directory"])
    printed = os.open("printed.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, number in ((nothing, 0), (printed, 1), (printed, 2)):
        os.dup2(file, number)
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    command.print_answers = lambda *_, **__: None
    options = ["--directory", asked["directory"], "--name", asked["name"]]
    sys.argv = ["dasfprof", "run", *options, asked["script"], *asked["arguments"]]
    dasfprof()
    raise SystemExit(0)


def _wait(child: int, seconds: float) -> int:
    """Return the exit code of a program, which is killed if it takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)


def _reap() -> None:
    """Wait for the remaining processes of a program."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended == 0:
            if time.monotonic() > deadline:
                for left in _children():
                    os.kill(left, signal.SIGKILL)
            time.sleep(0.02)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(number) for number in file.read().split()]


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
