"""Builds the stand-ins for NVIDIA's libraries that the tests use, and runs programs under them."""

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
    """Compile one of the tests' C files to a library; None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print(f"no C compiler: what needs {target.name} is left out")
        return None
    options = ["-O2", "-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-o", str(target)]
    subprocess.run([compiler, *options, str(SOURCES / source), "-lpthread"], check=True)
    return target


def run_apart(script: str, *arguments: str, **environment: str) -> Any:
    """Run a benchmark's own file in a fresh process; gives the JSON that it prints last."""
    run = subprocess.run(
        [sys.executable, script, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.splitlines()[-1])
