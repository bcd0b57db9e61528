"""Stand-ins for the NVIDIA driver, CUDA and Nsight Systems, built from C files."""

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def build_library(source: str, target: Path) -> Path:
    """Compile a C file in this directory to a shared library."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip(f"no C compiler (gcc or cc) here to build the stand-in {target.name}")
    options = ["-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-o", str(target)]
    subprocess.run([compiler, *options, str(HERE / source), "-lpthread"], check=True)
    return target


@dataclass
class Driver:
    """Stand-in for the driver's library, and its script."""

    directory: Path
    script: Path

    def answer(self, text: str) -> None:
        """Change its script, which applies from the next call in all processes."""
        fresh = self.script.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.script)

    @property
    def environment(self) -> dict[str, str]:
        """Return environment variables with which a process finds the library and the script."""
        return {"LD_LIBRARY_PATH": str(self.directory), "DASFPROF_TEST_NVML": str(self.script)}


def device(letter: str, bus: str, values: str = "") -> str:
    """Return the script of a device: a UUID of one letter, its bus position, and further lines."""
    defaults = {
        "uuid": uuid_of(letter),
        "name": "Stand-in",
        "bus": f"0:{bus}:0",
        "utilization": "50",
        "memory_utilization": "25",
        "memory_used": "3000000000",
        "memory_total": "16000000000",
        "power": "70500",
        "sm_clock": "1410",
        "memory_clock": "1215",
        "temperature": "61",
        "pcie_tx": "100",
        "pcie_rx": "200",
        "processes": "7 1000",
    }
    lines = [line.strip() for line in values.splitlines() if line.strip()]
    orders = [line for line in lines if line.startswith(("fail ", "sleep "))]
    defaults |= dict(line.split(" ", 1) for line in lines if line not in orders)
    told = [f"{key} {value}" for key, value in defaults.items() if value != "-"]
    return "\n".join(["device", *told, *orders, ""])


def instance(letter: str, values: str = "") -> str:
    """Return the script of a MIG instance of the previous device, which only reports memory."""
    lines = [f"uuid {uuid_of(letter, 'MIG')}", "name Stand-in MIG", "memory_used 500000000"]
    return "\n".join(["mig", *lines, "memory_total 2000000000", values, ""])


def uuid_of(letter: str, kind: str = "GPU") -> str:
    return f"{kind}-{letter * 8}-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Range:
    """NVTX range that was opened and closed."""

    kind: str
    domain: str
    process: int
    thread: int
    #: Number of open ranges below it when it was pushed, and when it was popped.
    depths: tuple[int, int]
    closed_by: int
    category: int
    color: str
    payload: str
    message: str


@dataclass
class NvtxLog:
    """Log of calls to the stand-in for Nsight."""

    library: Path
    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "NVTX_INJECTION64_PATH": str(self.library),
            "DASFPROF_TEST_NVTX": str(self.directory / "log"),
        }

    def clear(self) -> None:
        for path in self.directory.glob("log.*"):
            path.write_text("")  # the processes append, so they continue at the new end

    def lines(self) -> Iterator[tuple[int, list[str]]]:
        for path in self.directory.glob("log.*"):
            process = int(path.suffix[1:])
            for line in path.read_text().splitlines():
                yield process, line.split("\t")

    def strings(self) -> list[str]:
        """Return the strings in the domain `dasfprof`, once per registration."""
        return [
            words[2] for _, words in self.lines() if words[0] == "string" and words[1] == "dasfprof"
        ]

    def ranges(self) -> list[Range]:
        """Return the ranges from matched starts and ends, whose order must be right."""
        pushed: dict[tuple[int, str, str], list[list[str]]] = defaultdict(list)
        started: dict[tuple[int, str], list[str]] = {}
        found = []

        def add(kind: str, process: int, begin: list[str], end: list[str]) -> None:
            _, domain, thread, number, category, color, payload, message = begin
            depths = int(number), int(end[3])
            about = int(category), color, payload, message
            found.append(Range(kind, domain, process, int(thread), depths, int(end[2]), *about))

        for process, words in self.lines():
            match words[0]:
                case "push":
                    pushed[process, words[1], words[2]].append(words)
                case "pop":
                    add("push", process, pushed[process, words[1], words[2]].pop(), words)
                case "start":
                    started[process, words[3]] = words
                case "end":
                    add("start", process, started.pop((process, words[3])), words)
        assert not any(pushed.values())
        assert not started
        return found
