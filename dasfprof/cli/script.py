"""Runs a Python script or module as the interpreter itself would."""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import runpy
import sys
import types
import zipfile
from dataclasses import dataclass
from typing import Any


@dataclass
class Outcome:
    """How a script ended."""

    exit_code: int
    #: By Ctrl-C.
    interrupted: bool = False
    #: Holds the script's globals: dropping them would close the clients and clusters in them.
    remains: Any = None


def run_script(target: str, args: tuple[str, ...], *, as_module: bool) -> Outcome:
    """Run a file (or a directory or zip file with a ``__main__``) or a module as ``__main__``.

    ``sys.argv``, ``sys.path[0]`` and ``__main__`` are what the interpreter would make of them, and
    stay so. An exception that the script lets out is shown as the interpreter shows it, without
    frames of dasfprof.
    """
    sys.argv = [target, *args]
    try:
        if as_module:
            _set_first_path(os.getcwd())
            remains: Any = runpy.run_module(target, run_name="__main__", alter_sys=True)
        elif os.path.isdir(target) or zipfile.is_zipfile(target):
            _set_first_path(None)  # runpy puts the target there
            remains = runpy.run_path(target, run_name="__main__")
        else:
            _set_first_path(os.path.dirname(os.path.realpath(target)))
            remains = _run_file(os.path.abspath(target))
    except SystemExit as end:
        return Outcome(_exit_code(end.code), remains=end)
    except BaseException as error:
        error.__traceback__ = _of_script(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return Outcome(1, isinstance(error, KeyboardInterrupt), remains=error)
    return Outcome(0, remains=remains)


def _set_first_path(path: str | None) -> None:
    """Replace the directory of the `dasfprof` command, which the interpreter put first."""
    if not getattr(sys.flags, "safe_path", False):  # there only since Python 3.11
        sys.path[:1] = [] if path is None else [path]


def _run_file(path: str) -> types.ModuleType:
    """Execute a file in a new ``__main__``; `runpy.run_path` would give it another argv[0]."""
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    vars(module).update(__file__=path, __loader__=loader, __cached__=None, __builtins__=builtins)
    code = compile(loader.get_data(path), path, "exec", dont_inherit=True)
    sys.modules["__main__"] = module
    exec(code, vars(module))
    return module


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _of_script(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Leave out the frames of this module and of runpy, which come first."""
    ours = (__name__, "runpy")
    while traceback is not None and traceback.tb_frame.f_globals.get("__name__") in ours:
        traceback = traceback.tb_next
    return traceback
