"""What is in the Parquet files: `SCHEMAS`; ``PARQUET.md`` says the same to their readers."""

from __future__ import annotations

from dasfprof.report.formats.parquet.readings import READINGS
from dasfprof.report.formats.parquet.schema import WHO, table

_SCHEDULER = """
scheduler_waiting     time     the scheduler knew of it, waiting for dependencies
queued                time     runnable, but held back at the scheduler
stolen                time     last moved to another worker before it ran
sent                  time     sent to its worker
known                 time     the scheduler knew the outcome
scheduler_start       time     start, as the scheduler was told
scheduler_stop        time     end, as the scheduler was told
scheduler_state       text     what it became, to the scheduler
scheduler_size        bytes    the result, as the scheduler was told
scheduler_exception   text     the exception, as the scheduler was told
priority_user         number   the user's priority
priority_generation   count    Dask's: lower for graphs that came earlier
priority_order        count    Dask's: place within its graph
cause                 stimulus stimulus id of what sent it
end_cause             stimulus stimulus id of what ended it
graph                 stimulus stimulus id of the graph that made it runnable, as in graphs
wanted                count    1: as it ended a client held a future of it, and was told
annotations           text     Dask's annotations
"""

_RUN = f"""
key_id                id       number of the key, as in keys
key                   key      the key, as Python writes it
run_id                id       Dask's number of the attempt; with the key it identifies a task run
{WHO.strip()}
function              text     Dask's key_split of the key
step                  text     of the pipeline; of nested ones the path
"""

SCHEMAS = (
    table(
        "tasks",
        "A row a task run: one attempt to run a key on a worker.",
        f"""{_RUN}
state                 text     that it ended in: memory, erred, cancelled, rescheduled
source                text     who recorded it: worker, or scheduler where no worker's file is there
start                 time     its function began
duration              seconds  of its function
received              time     the worker knew of it
ready                 time     its dependencies were on the worker
executing             time     it was given a thread
seceded               time     it gave its thread back and went on
done                  time     the worker knew the outcome
thread                text     identity of the thread; null for coroutines
cpu                   seconds  CPU time of the thread
run_queue             seconds  the thread could run and had no core; 0 of most under a millisecond
deserialize           seconds  deserialising in the run
disk_read             seconds  unspilling of inputs
disk_read_size        bytes    inputs that were unspilled
executor              seconds  waiting for the thread pool, and returning from it
size                  bytes    the result
input_size            bytes    the dependencies' results together
type                  text     the result's type
dtype                 text     the result's dtype
shape                 text     the result's shape
exception             text     what it raised
dependencies          ids      key_id of each dependency; null where nobody told
{_SCHEDULER}""",
    ),
    table(
        "scheduler_only",
        "Task runs that the scheduler saw and no worker's file holds.",
        f"""{_RUN}
lost                  flag     it ended in memory or erred, so that it ran for certain
reason                text     why its worker's file lacks it
{_SCHEDULER}""",
    ),
    table(
        "keys",
        "A row a key, those that never ran too.",
        """
key_id                id       its number, from 0
key                   key      the key, as Python writes it
function              text     Dask's key_split of the key
""",
    ),
    table(
        "transitions",
        "A row a change of state of a task run.",
        """
key_id                id       number of the key, as in keys
run_id                id       Dask's number of the attempt
worker_id             id       row of workers, from 0
observer              text     who recorded it: worker, scheduler
state                 text     the state that began
time                  time     when
""",
    ),
    table(
        "transfers",
        "A row a message that brought results from another worker.",
        f"""{WHO}
source                text     address of the sender
start                 time     it was asked for
duration              seconds  until it was there
state                 text     success, busy, missing, failed
size                  bytes    of the results
network               seconds  on the network
deserialize           seconds  deserialising
keys                  ids      key_id of each result
""",
    ),
    table(
        "workers",
        "A row a life of a worker process; the scheduler is one of them.",
        """
worker_id             id       its number, from 0
host                  text     name of its host
worker                text     its label
kind                  text     worker, scheduler, or host for facts of no worker
name                  text     as Dask calls it
address               text     as Dask knows it
nthreads              count    its threads
memory_limit          bytes    that it may take; null: no limit
pid                   count    its process
boot_id               text     of its host: equal ones share a clock
first_seen            time     its earliest fact
last_seen             time     its latest fact
joined                time     it joined the cluster, by the scheduler
left                  time     it left, by the scheduler
left_reason           text     why
closed                flag     its files were finished; false: they end early
""",
    ),
    table(
        "steps",
        "A row each time that a step of the pipeline was entered.",
        """
step                  text     the path of the steps' names
name                  text     its own name
parent                id       row, from 0, of the step around it; null: none
start                 time     it was entered
duration              seconds  until it was left
id                    id       its number
""",
    ),
    table(
        "graphs",
        "A row a graph of tasks that arrived at the scheduler.",
        """
time                  time     when
client                text     of which client
tasks                 count    how many tasks
wanted                count    how many results the client asked for
step                  text     steps in which it was computed, the outermost first
stimulus              stimulus its stimulus id
""",
    ),
    table(
        "steals",
        "A row a task that was moved from a busy worker to an idle one before it ran.",
        """
time                  time     when
key                   key      the key, as Python writes it
run_id                id       Dask's number of the attempt
victim                text     address that lost it
thief                 text     address that got it
""",
    ),
    table(
        "unsent",
        "A row a function and state of tasks that no worker had been sent when recording ended.",
        """
time                  time     the first of them came to the scheduler
name                  text     Dask's key_split of the keys
state                 text     waiting, queued or no-worker
tasks                 count    how many
key                   key      of the first, as Python writes it
restrictions          text     what the first asks of a worker, as JSON
""",
    ),
    table(
        "events",
        "A row an event that user code recorded, of a kind of its own.",
        """
name                  text     what user code called it
kind                  text     span, instant; begin or end where the other is missing
time                  time     when it began
duration              seconds  how long it took; null where nothing tells
process               text     its process_id
thread                text     its thread_id
args                  text     its args, as JSON
""",
    ),
    *READINGS,
)
