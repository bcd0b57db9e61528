"""One run of a trial, as `dasfprof.handles.trial` starts it with the path of a plan.

It runs a script as ``dasfprof run`` does, or a function, with the options of local clusters that
the plan names, and writes what came of it into the file that the plan names.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from dasfprof.handles.script import (
    Outcome,
    change_clusters,
    observe_clients,
    run_script,
    with_arguments,
)


def main(path: str) -> int:
    """Run what a plan says; return the exit code."""
    plan = json.loads(Path(path).read_text())
    program, told = plan["program"], Path(plan["told"])
    arguments = plan["settings"].pop("arguments")
    changed = change_clusters(plan["settings"])
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
    found = {
        "exit_code": outcome.exit_code,
        "seconds": seconds,
        "clusters": [cluster for one in changed for cluster in one.clusters],
        "missed_config": [name for one in changed for name in one.otherwise_in_config()],
        "refusals": recorder.refusals,
    }
    ready = told.with_suffix(".new")
    ready.write_text(json.dumps(found))
    ready.replace(told)
    return outcome.exit_code


def _call(source: Path, value: Path) -> Outcome:
    """Call a pickled function, with a client of a new cluster if it takes one; pickle its value."""
    import pickle

    try:
        paths, payload, cluster = pickle.loads(source.read_bytes())
        sys.path[:] = paths
        function = pickle.loads(payload)
        result = _with_client(function, cluster) if cluster is not None else function()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return Outcome(1, isinstance(error, KeyboardInterrupt), remains=error)
    from distributed.protocol.pickle import dumps

    try:
        value.write_bytes(dumps(result))
    except Exception as error:
        sys.stderr.write(f"what the function returns cannot be pickled: {error!r}\n")
    return Outcome(0, remains=result)


def _with_client(function: Any, options: dict[str, Any]) -> Any:
    from distributed import Client

    with Client(**{"dashboard_address": None, **options}) as client:
        return function(client)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
