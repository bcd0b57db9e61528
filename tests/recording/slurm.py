"""Slurm on one host, for tests that run jobs: Debian's packages slurm-wlm and munge."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from clusters import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")

CONFIG = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


def is_there() -> bool:
    """Return whether this host can run Slurm."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    return os.geteuid() == 0 and all(shutil.which(name, path=path) for name in PROGRAMS)


@contextmanager
def slurm(place: Path) -> Iterator[dict[str, str]]:
    """Run Slurm in a directory, and yield the environment for its commands."""
    ports = [free_port() for _ in range(2)]
    (place / "state").mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    config = place / "slurm.conf"
    facts = {"host": host, "place": place, "cores": os.cpu_count()}
    config.write_text(CONFIG.format(**facts, controller=ports[0], node=ports[1]))
    key = place / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    files = {"key-file": key, "socket": place / "munge.socket", "pid-file": place / "munge.pid"}
    files |= {"log-file": place / "munge.log", "seed-file": place / "munge.seed"}
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    environment = {**os.environ, "PATH": path, "SLURM_CONF": str(config)}
    munge = ["munged", "--foreground", "--force", *(f"--{n}={at}" for n, at in files.items())]
    with ExitStack() as started:
        for program in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
            output = started.enter_context((place / f"{program[0]}.out").open("wb"))
            process = subprocess.Popen(program, env=environment, stdout=output, stderr=output)
            started.callback(process.wait)
            started.callback(process.terminate)
            if program[0] == "munged":
                wait_until(files["socket"].exists)
        wait_until(partial(_is_idle, environment), every=0.2)
        yield environment


def _is_idle(environment: dict[str, str]) -> bool:
    asked = ["sinfo", "--noheader", "--format=%T"]
    told = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    return told.stdout.strip() == "idle"


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port
