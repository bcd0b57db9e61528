"""Plant small faults in a copy of the package, and print which of them the tests notice.

``python tests/validation/mutations.py [NAME ...] [-o FILE]`` copies the checkout, applies one
mutation after the other, and runs the tests listed beside it until the first failure. A mutation
that survives is a gap in the suite. All of them take about 20 minutes on two cores.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Seconds that the tests of one mutation may take. A mutation that makes them hang is noticed.
TIMEOUT = 400


@dataclass
class Mutation:
    """A fault: the text that it replaces, which occurs once in the package, and its tests."""

    name: str
    old: str = ""
    new: str = ""
    tests: str = ""


PARTS = {"- ": "old", "+ ": "new", "@ ": "tests"}

#: Each fault: its name, the text that occurs once in the package (-), what replaces it (+; nothing
#: without such a line), and the tests that notice it (@).
FAULTS = r"""
a truncated frame is not recognized
- return MARKER.startswith(data[position : position + len(MARKER)])
+ return data[position : position + len(MARKER)].startswith(MARKER)
@ database/test_recovery.py database/test_format.py
payloads inflate to one byte more than allowed
- if len(plain) > limit:
+ if len(plain) > limit + 1:
@ database/test_format.py database/test_recovery.py
losses to a silent disk and to a slow one are swapped
- "disk gone" if silent else "too fast"
+ "too fast" if silent else "disk gone"
@ database/test_writer_faults.py
rows in flight do not count as pending
- source.pending + source.in_flight < self.commit_threshold
+ source.pending < self.commit_threshold
@ database/test_writer_faults.py
events beyond max_pending are kept
-             self._drop_newest(source)
-         else:
-             self.wake()
+             pass
+         else:
+             self.wake()
@ database/test_writer_faults.py
a resumed run is received again
- if key not in self._executing:
+ if True:
@ recording/test_workloads.py recording/test_task_observers.py recording/test_dask_internals.py
only the last CPU metric counts
- cpu = value if cpu is None else cpu + value
+ cpu = value
@ recording/test_workloads.py
input size is that of the last dependency
- size += dependency.nbytes or 0
+ size = dependency.nbytes or 0
@ recording/test_workloads.py recording/test_dask_internals.py
tasks that a closing worker never started are recorded as runs
- if not event.stimulus_id.startswith("worker-closing"):
+ if True:
@ recording/test_workloads.py
transfers that bring nothing count as success
- state = "success" if keys else "missing"
+ state = "success"
@ recording/test_workloads.py recording/test_dask_internals.py recording/test_task_observers.py
unsent tasks wait since the last of them came
- groups[kind] = min(start, since), first, count + 1
+ groups[kind] = max(start, since), first, count + 1
@ recording/test_under_way.py
CPU wait before the task is included
- return min(waited, max(0.0, duration - (cpu or 0.0)))
+ return waited
@ recording/test_run_queue.py
the wrong generation of garbage collections is left out
- if info["generation"] == 0:
+ if info["generation"] == 1:
@ recording/test_garbage.py
bytes read and written are swapped
- return int(words[read]), int(words[written])
+ return int(words[written]), int(words[read])
@ recording/test_host_counters.py recording/test_resource_monitor.py
the loosest control group counts
- return min(limits)[::-1] if limits else None
+ return max(limits)[::-1] if limits else None
@ recording/test_host_counters.py
a worker's messages to itself count as transfers
- if target == sender:
-             return
+ if target == sender:
+             pass
@ recording/test_p2p_shuffles.py
deserialization counts as network time
-             spent[label] += value
+             spent["network"] += value
@ recording/test_workloads.py recording/test_dask_internals.py recording/test_serialising.py
throughput divides by all seconds
- ratio(size, sums.sum("sized")) / 1e6
+ ratio(size, seconds) / 1e6
@ analysis/test_bottleneck_tables.py analysis/test_tables_against_oracle.py
the first start of a step is its last
- run.since_begin(groups.min(start))
+ run.since_begin(groups.max(start))
@ analysis/test_steps.py
imbalance has the ratio upside down
- (1 - ratio(mean, highest)) * 100
+ (1 - ratio(highest, mean)) * 100
@ analysis/test_imbalance.py
the busiest worker is the idlest
- listed[load.argmax(axis=1)]
+ listed[load.argmin(axis=1)]
@ analysis/test_imbalance.py
the critical path goes back in time
- end = np.minimum.accumulate(end[::-1])[::-1]
+ end = end[::-1][::-1]
@ analysis/test_critical_path.py
failed transfers move bytes
- np.where(succeeded & np.isfinite(size), size, 0.0)
+ np.where(np.isfinite(size), size, 0.0)
@ analysis/test_transfers.py
first transfers count as repeated
- again=groups.sum(size * ~first)
+ again=groups.sum(size * first)
@ analysis/test_transfers.py analysis/test_links.py analysis/test_diagnosis.py
slots overlap where one ends as the next starts
- order = np.lexsort((step, time, of_worker))
+ order = np.lexsort((-step, time, of_worker))
@ analysis/test_time_accounting.py
Holm's correction is reversed
- np.arange(len(order), 0, -1)
+ np.arange(1, len(order) + 1)
@ analysis/test_significance.py
a union forgets spans within others
- begins, latest = begins[order], np.maximum.accumulate(ends[order])
+ begins, latest = begins[order], ends[order]
@ analysis/test_time_accounting.py
samples hold after the sampler has stopped
- return np.minimum(np.r_[times[1:], np.inf], times + longest)
+ return np.maximum(np.r_[times[1:], np.inf], times + longest)
@ analysis/test_gpu_utilisation.py
stragglers among few runs
-  & (runs.groups.sizes[runs.groups.codes] >= FEWEST)
@ analysis/test_stragglers.py
degradation where either measure changes
- falls = (correlation <= -RANK_CORRELATION) & (count
+ falls = (correlation <= -RANK_CORRELATION) | (count
@ analysis/test_degradation.py
a task that may have run is certain to have taken the memory
- "certain" if kill.tasks[0].seen else "likely"
+ "certain" if True else "likely"
@ analysis/test_memory_kills.py
unfinished runs are compared
- [run for run in before if run.is_complete] or list(before)
+ list(before)
@ analysis/test_comparison.py
the scheduler expects the last duration
- 0.5 * (seconds + average)
+ seconds
@ analysis/test_replay.py analysis/test_replay_of_clusters.py
queued tasks are sent in the wrong order
- row = self._by_rank[heappop(queue)]
+ row = self._by_rank[queue.pop()]
@ analysis/test_replay.py
root tasks are sent like other tasks
- self._root_size[row] <= 2 * self._total_threads
+ self._root_size[row] >= 0
@ analysis/test_replay.py
a worker without free slots takes a queued task
- self.processing[worker] >= self._slots[worker]
+ self.processing[worker] > self._slots[worker]
@ analysis/test_replay.py
work is stolen where moving does not pay
- occupancy[victim] - (at_victim + seconds) / 2
+ occupancy[victim] + (at_victim + seconds) / 2
@ analysis/test_replay.py analysis/test_replay_of_clusters.py
a worker fetches what it holds
- wait + (total - size) / self._bandwidth
+ wait + size / self._bandwidth
@ analysis/test_replay.py
the ends of slices in a trace export are in the wrong unit
- ((slices.stops[part] - slices.starts[part]) / 1000).tolist()
+ (slices.stops[part] - slices.starts[part]).tolist()
@ report/test_chrome_trace.py
formulas after blanks reach spreadsheets
- cell.lstrip(" \xa0").startswith(_FORMULA_LEADS)
+ cell.startswith(_FORMULA_LEADS)
@ report/test_csv.py report/test_export.py
minutes lose their seconds
- else f"{minutes} min {remainder} s"
+ else f"{minutes} min {minutes} s"
@ report/test_text.py
"""


def read_mutations() -> list[Mutation]:
    """Read the faults: lines with the same sign belong to one text."""
    mutations: list[Mutation] = []
    for line in FAULTS.strip().splitlines():
        sign, text = line[:2], line[2:]
        if sign not in PARTS:
            mutations.append(Mutation(line))
        elif lines := getattr(mutations[-1], PARTS[sign]):
            setattr(mutations[-1], PARTS[sign], f"{lines}\n{text}")
        else:
            setattr(mutations[-1], PARTS[sign], text)
    return mutations


def run_tests(checkout: Path, tests: str) -> tuple[str, float]:
    """Run tests until the first failure; return the test that failed, and the seconds it took."""
    # A test file that the checkout does not have is left out, so that older checkouts work too.
    paths = [f"tests/{name}" for name in tests.split() if (checkout / "tests" / name).exists()]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *paths]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": ""}
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {TIMEOUT} s", time.monotonic() - begin
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    ended = f"exit code {done.returncode}" if done.returncode else ""
    return failed[0].split()[1] if failed else ended, time.monotonic() - begin


def plant(package: Path, mutation: Mutation) -> tuple[Path, str] | None:
    """Apply a mutation; return the file with its former text, or None if the text is not there."""
    hits = [path for path in package.rglob("*.py") if mutation.old in path.read_text("utf-8")]
    if len(hits) != 1 or hits[0].read_text("utf-8").count(mutation.old) != 1:
        return None
    text = hits[0].read_text("utf-8")
    hits[0].write_text(text.replace(mutation.old, mutation.new), "utf-8")
    return hits[0], text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help="which mutations; all if none is named")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="what is mutated")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file for the outcomes")
    options = parser.parse_args()
    outcomes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        checkout = Path(directory, "checkout")
        left_out = shutil.ignore_patterns(".git", ".venv*", "node_modules", "__pycache__")
        shutil.copytree(options.checkout, checkout, ignore=left_out)
        for mutation in read_mutations():
            if options.name and mutation.name not in options.name:
                continue
            planted = plant(checkout / "dasfprof", mutation)
            if planted is None:
                outcomes[mutation.name] = "not applicable"
            else:
                caught, seconds = run_tests(checkout, mutation.tests)
                outcomes[mutation.name] = f"caught by {caught}" if caught else "SURVIVED"
                print(f"{seconds:6.1f} s", end="  ")
                planted[0].write_text(planted[1], "utf-8")
            print(f"{outcomes[mutation.name]}: {mutation.name}", flush=True)
            if options.output:
                options.output.write_text(json.dumps(outcomes, indent=1) + "\n")
    caught = sum(outcome.startswith("caught") for outcome in outcomes.values())
    print(f"{caught} of {len(outcomes)} mutations were caught")


if __name__ == "__main__":
    main()
