"""Building of the tests' stand-ins for NVIDIA's libraries, and running of programs with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[1] / "tests" / "gpu"


def build(source: str, target: Path) -> Path | None:
    """Compile a C file of the tests to a library; return None if there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print(f"No C compiler: measurements that need {target.name} are left out")
        return None
    options = ["-O2", "-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-o", str(target)]
    subprocess.run([compiler, *options, str(SOURCES / source), "-lpthread"], check=True)
    return target


def run_apart(script: str, *arguments: str, **environment: str) -> Any:
    """Run a benchmark's file in a new process, and return the JSON in its last line of output."""
    run = subprocess.run(
        [sys.executable, script, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.splitlines()[-1])
