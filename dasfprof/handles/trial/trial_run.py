"""One run of a trial. `dasfprof.handles.trial` starts this module with the path of a plan.

The module runs a script as ``dasfprof run`` does, or calls a function. Local clusters get the
options in the plan. The result is written to a file that the plan names.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from dasfprof.handles.script import (
    ScriptResult,
    change_clusters,
    observe_clients,
    run_script,
    with_arguments,
)


def main(path: str) -> int:
    """Execute a plan, and return the exit code of the program."""
    plan = json.loads(Path(path).read_text())
    program, result = plan["program"], Path(plan["result"])
    arguments = plan["settings"].pop("arguments")
    changed = change_clusters(plan["settings"])
    if program["moved"]:
        sys.path[:] = [_in_copy(path, *program["moved"]) for path in sys.path]
    recorder = observe_clients(program["name"], program["options"])
    begin = time.perf_counter()
    if program["function"]:
        outcome = _call(Path(program["function"]), Path(plan["value"]))
    else:
        target, *args = program["command"]
        outcome = run_script(
            target, with_arguments(args, arguments), as_module=program["as_module"]
        )
    seconds = time.perf_counter() - begin
    sys.stdout.flush()
    recorder.finish()
    facts = {
        "exit_code": outcome.exit_code,
        "seconds": seconds,
        "clusters": [cluster for options in changed for cluster in options.clusters],
        "missed_config": [name for options in changed for name in options.otherwise_in_config()],
        "refusals": recorder.refusals,
        "unpatched": _imported_originals(program),
    }
    ready = result.with_suffix(".new")
    ready.write_text(json.dumps(facts))
    ready.replace(result)
    return outcome.exit_code


def _in_copy(path: str, root: str, copy: str) -> str:
    """Return the path in a copy of a directory that corresponds to a given path.

    `root` is the original directory, and `copy` is its copy. Return `path` itself if it is not a
    directory that was copied.
    """
    path = os.path.realpath(path)
    if os.path.commonpath([path, root]) != root or os.path.commonpath([path, copy]) == copy:
        return path
    moved = os.path.realpath(os.path.join(copy, os.path.relpath(path, root)))
    is_copied = os.path.isdir(moved) and os.path.commonpath([moved, copy]) == copy
    return moved if is_copied else path


def _imported_originals(program: dict[str, Any]) -> list[str]:
    """Return the original files that were imported although the patch changed their copies."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    imported = {os.path.realpath(file) for file in files if isinstance(file, str)}
    originals = {os.path.join(*program["moved"][:1], name) for name in program["patched"]}
    return sorted(imported & originals)


def _call(source: Path, value: Path) -> ScriptResult:
    """Call a pickled function, and pickle its return value to a file.

    If the plan has options of a cluster, the function gets a client of a new cluster.
    """
    import pickle

    try:
        paths, payload, cluster = pickle.loads(source.read_bytes())
        sys.path[:] = paths
        function = pickle.loads(payload)
        result = _with_client(function, cluster) if cluster is not None else function()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return ScriptResult(1, isinstance(error, KeyboardInterrupt), remains=error)
    from distributed.protocol.pickle import dumps

    try:
        value.write_bytes(dumps(result))
    except Exception as error:
        sys.stderr.write(f"the return value of the function cannot be pickled: {error!r}\n")
    return ScriptResult(0, remains=result)


def _with_client(function: Any, options: dict[str, Any]) -> Any:
    from distributed import Client

    with Client(**{"dashboard_address": None, **options}) as client:
        return function(client)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
