"""Programs that run in separate processes, forked from a process that has done the imports.

Library paths are read when a process starts, and importing distributed takes a second of CPU time.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_SERVER = """
import json, os, sys, traceback
imports, program = sys.argv[1:]
exec(imports, globals())
for line in sys.stdin:
    environment, argument, out, err = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environ.clear()
            os.environ.update(environment)
            for number, path in ((1, out), (2, err)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
            exec(program, {**globals(), "argument": argument})
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class ForkedPrograms:
    """Program that runs repeatedly, each time in a process that is forked after the imports.

    Its code reads its input from the variable `argument`.
    """

    def __init__(self, imports: str, program: str, environment: dict[str, str]) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, imports, program],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, argument: Any, environment: dict[str, str], directory: Path) -> tuple[str, str]:
        """Run the program with these environment variables, and return both output streams."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        out, err = (directory / name for name in ("stdout", "stderr"))
        for path in (out, err):
            path.unlink(missing_ok=True)
        request = json.dumps([environment, argument, str(out), str(err)])
        print(request, file=self._server.stdin, flush=True)
        code = self._server.stdout.readline().strip()
        assert code == "0", err.read_text()
        return out.read_text(), err.read_text()

    def close(self) -> None:
        self._server.communicate()
