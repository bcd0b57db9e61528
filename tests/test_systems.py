"""Recording on macOS and reading on Windows, simulated on Linux by removing what these lack."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole_program

#: Removes what a system lacks. Each process imports it before its program, but after the libraries,
#: which are different on that system.
SIMULATION = '''
import os, signal, socket, sys, sysconfig, time
import distributed, psutil, resource, uuid

system = os.environ["SIMULATED_SYSTEM"]
sysconfig.get_config_vars()
sys.platform = system
os.process_cpu_count = os.cpu_count
gone = ("getxattr", "memfd", "pidfd", "posix_f", "sched_", "timerfd", "eventfd")
for module, name in ((resource, "RUSAGE_THREAD"), (time, "pthread_getcpuclockid")):
    vars(module).pop(name, None)
if system == "win32":
    for name in ("resource", "fcntl", "grp", "pwd", "termios"):
        sys.modules[name] = None
    gone += (
        "O_CLOEXEC", "pread", "setpriority", "getpgid", "killpg", "fork", "register_at_fork",
        "sysconf", "statvfs", "fstatvfs", "getuid", "uname",
    )
    for name in ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGBUS", "SIGUSR1"):
        delattr(signal, name)
    del socket.AF_UNIX, time.clock_gettime
for name in dir(os):
    if name.startswith(gone):
        delattr(os, name)

def refuse(event, args):
    """Let files of /proc and /sys be missing for dasfprof; psutil has another source there."""
    if event not in ("open", "os.listdir", "os.scandir") or isinstance(args[0], int):
        return
    path = os.fsdecode(args[0] or "")
    frame = sys._getframe(1) if path.startswith(("/proc", "/sys/")) else None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("psutil"):
            return
        if module.startswith("dasfprof"):
            raise FileNotFoundError(2, "No such file or directory", path)
        frame = frame.f_back

sys.addaudithook(refuse)
'''

#: Records two functions, one of which sleeps, on two worker processes, and prints the findings.
RECORD = """
import json, sys, time
from distributed import Client, LocalCluster
import dasfprof

def compute(_):
    begin = time.thread_time()
    while time.thread_time() - begin < 0.05:
        pass

def sleep(_):
    time.sleep(0.05)

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client, dasfprof.profile(client, directory=sys.argv[1], name="r"):
            client.gather(client.map(compute, range(8)))
            client.gather(client.map(sleep, range(8)))
            assert client.run(lambda: sys.platform).popitem()[1] == sys.platform
    analyser = dasfprof.TraceAnalyser(dasfprof.open_run(sys.argv[1] + "/r"))
    run = analyser.in_memory
    tasks = run.tasks[["function", "cpu", "run_queue"]]
    print(json.dumps({
        "cpu": tasks.groupby("function", observed=True)["cpu"].mean().to_dict(),
        "waits": int(tasks["run_queue"].notna().sum()),
        "notes": [[note.kind, note.text] for note in run.notes],
        "memory": int(run.samples["memory"].notna().sum()),
        "findings": list(analyser.diagnose()["Rule"]),
        "classes": dict(analyser.time_accounting()[["Class", "Meaning"]].values.tolist()),
    }))
"""

#: Imports every module, analyses a trace, and tries to record.
READ = """
import importlib, json, pkgutil, sys
import dasfprof
from dasfprof.errors import DasfprofError

for module in pkgutil.walk_packages(dasfprof.__path__, "dasfprof."):
    if not module.name.endswith(("__main__", "jupyter")):
        importlib.import_module(module.name)
analyser = dasfprof.TraceAnalyser(dasfprof.open_run(sys.argv[1] + "/r"))
analyser.report(sys.argv[1] + "/report.html")
try:
    dasfprof.register_default_profiler(object())
except DasfprofError as error:
    message = str(error)
print(json.dumps({"message": message, "accounting": len(analyser.time_accounting())}))
"""


def run_on(system: str, program: str, directory: Path) -> dict:
    simulation = directory / system
    simulation.mkdir()
    (simulation / "sitecustomize.py").write_text(SIMULATION)
    script = simulation / "program.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, str(script), str(directory)],
        env={**os.environ, "PYTHONPATH": str(simulation), "SIMULATED_SYSTEM": system},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=300,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_macos_records_and_windows_reads(tmp_path: Path) -> None:
    """On macOS, CPU wait is unknown, and the trace reports this."""
    recorded = run_on("darwin", RECORD, tmp_path)
    assert recorded["cpu"]["compute"] > 0.04 > recorded["cpu"]["sleep"]
    assert recorded["memory"] > 0
    assert "Computing" in recorded["classes"]
    assert recorded["waits"] == 0
    assert "Waiting for CPU" not in recorded["classes"]
    (text,) = (text for kind, text in recorded["notes"] if kind == "system")
    assert "macOS" in text and "waits for a core (they are part of Blocked)" in text
    assert "caught-errors" not in [kind for kind, _ in recorded["notes"]]
    # Facts that the system does not provide are not reported as missing because of the settings.
    assert not {"rule-failed", "cpu-oversubscribed", "incomplete-trace"} & set(recorded["findings"])

    answer = run_on("win32", READ, tmp_path)
    assert answer["accounting"] == len(recorded["classes"])
    assert "does not record on Windows" in answer["message"]
    assert (tmp_path / "report.html").stat().st_size > 0
