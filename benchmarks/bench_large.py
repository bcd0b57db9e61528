"""Time and memory to analyse runs larger than memory, and how the time scales with workers.

Events are task runs as the worker plugin records them, in files of several workers. First, one
process makes the three tables of the tutorial in parts, with a limit of 2 GB. Then Dask clusters
of one and of two worker processes make them, with one thread and 3 GB per process. Client and
scheduler use the same cores.
One hundred million events (``--events 100000000 --no-clusters``) are 2.9 GB of files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Result
from synthetic import write_runs

IN_PARTS = """
import dask, json, os, resource, sys, time, warnings
from dasfprof import TraceAnalyser
from dasfprof.analysis.tables import questions
warnings.simplefilter("ignore")
dask.config.set({"dasfprof.analysis-memory": "2GB" if len(sys.argv) < 3 else sys.argv[2]})
begin, used = time.perf_counter(), time.process_time()
analyser = TraceAnalyser(sys.argv[1], progress=False)
asked = [questions.Request(questions.named(name)) for name in ("function", "task", "balance")]
analyser.prepare(asked)
for request in asked:
    request.table(analyser)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
took, used = time.perf_counter() - begin, time.process_time() - used
print(json.dumps([took, used, peak, analyser.is_in_parts]))
"""

ON_CLUSTER = """
import json, resource, sys, time, warnings
from distributed import Client, LocalCluster
from dasfprof import TraceAnalyser
from dasfprof.analysis.tables import questions
warnings.simplefilter("ignore")
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
if __name__ == "__main__":
    with LocalCluster(
        n_workers=int(sys.argv[2]), threads_per_worker=1, memory_limit="3GB", dashboard_address=None
    ) as cluster, Client(cluster) as client:
        client.run(lambda: __import__("dasfprof.analysis.large.run"))
        begin = time.perf_counter()
        analyser = TraceAnalyser(sys.argv[1], client=client, progress=False)
        asked = [questions.Request(questions.named(name)) for name in ("function", "balance")]
        analyser.prepare(asked)
        for request in asked:
            request.table(analyser)
        took = time.perf_counter() - begin
        print(json.dumps([took, max(client.run(peak).values())]))
"""


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--traces", type=Path, help="directory with traces of an earlier run")
    parser.add_argument("--memory", default="2GB", help="memory limit of the analysis")
    parser.add_argument("--no-clusters", action="store_true")
    options = parser.parse_args(arguments)
    alone = Result("In parts", ["events", "seconds", "CPU s", "us per event", "peak memory, GB"])
    columns = ["events", "workers", "seconds", "speedup", "peak memory per worker, GB"]
    shared = Result("On a cluster", columns)
    with tempfile.TemporaryDirectory() as directory:
        traces = options.traces or Path(directory)
        if options.traces is None:
            write_runs(traces, options.events, workers=options.files)
        count = f"{options.events:,}"
        seconds, used, peak, in_parts = run(IN_PARTS, str(traces), options.memory)
        assert in_parts, "the run fits into memory"
        cells = [f"{seconds:.1f}", f"{used:.1f}", f"{used / options.events * 1e6:.2f}"]
        alone.rows.append([count, *cells, f"{peak / 1e9:.2f}"])
        alone.figures = {"events": options.events, "cpu": used, "peak": peak}
        first = None
        for workers in () if options.no_clusters else (1, 2):
            took, peak = run(ON_CLUSTER, str(traces), str(workers))
            first = first or took
            cells = [f"{took:.1f}", f"{first / took:.2f}", f"{peak / 1e9:.2f}"]
            shared.rows.append([count, str(workers), *cells])
            shared.figures[str(workers)] = {"seconds": took, "peak": peak}
    results = [alone] if options.no_clusters else [alone, shared]
    for result in results:
        print(result.show(), flush=True)
    return results


def run(program: str, *arguments: str) -> object:
    """Run a program, and return the JSON that it prints."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(program)
        file.flush()
        command = [sys.executable, file.name, *arguments]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


if __name__ == "__main__":
    main()
