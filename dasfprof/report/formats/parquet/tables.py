"""What is in the Parquet files: `SCHEMAS`; ``PARQUET.md`` says the same to their readers."""

from __future__ import annotations

from dasfprof.report.formats.parquet.readings import READINGS
from dasfprof.report.formats.parquet.schema import TIME, WHO, TableSchema, columns, recorded
from dasfprof.schema.tasks import COMPUTE, GRAPH, STEAL, TASK_RUN, TRANSFER, UNSENT_TASKS

#: What the tables call columns of the scheduler's record that the worker's has too.
_RENAMED = {
    "waiting": "scheduler_waiting",
    "start": "scheduler_start",
    "stop": "scheduler_stop",
    "state": "scheduler_state",
    "size": "scheduler_size",
    "exception": "scheduler_exception",
}

_SCHEDULER = (
    *columns("""
sent                  time     sent to its worker
known                 time     the scheduler knew the outcome
"""),
    *recorded(TASK_RUN, without={"key", "run_id", "worker"}, renamed=_RENAMED),
)

_KEY = columns("key_id id number of the key, as in keys")
_KEY_TEXT = columns("key key the key, as Python writes it")

_RUN = (
    *_KEY,
    *_KEY_TEXT,
    *columns("run_id id Dask's number of the attempt; with the key it identifies a task run"),
    *WHO,
    *columns("""
function              text     Dask's key_split of the key
step                  text     of the pipeline; of nested ones the path
"""),
)

SCHEMAS = (
    TableSchema(
        "tasks",
        "A row a task run: one attempt to run a key on a worker.",
        (
            *_RUN,
            *columns("""
source                text     who recorded it: worker, or scheduler where no worker's file is there
start                 time     its function began
duration              seconds  of its function
"""),
            *recorded(COMPUTE, without={"key", "run_id", "dependencies"}),
            *columns("dependencies ids key_id of each dependency; null where nobody told"),
            *_SCHEDULER,
        ),
    ),
    TableSchema(
        "scheduler_only",
        "Task runs that the scheduler saw and no worker's file holds.",
        (
            *_RUN,
            *columns("""
lost                  flag     it ended in memory or erred, so that it ran for certain
reason                text     why its worker's file lacks it
"""),
            *_SCHEDULER,
        ),
    ),
    TableSchema(
        "keys",
        "A row a key, those that never ran too.",
        columns("""
key_id                id       its number, from 0
key                   key      the key, as Python writes it
function              text     Dask's key_split of the key
"""),
    ),
    TableSchema(
        "transitions",
        "A row a change of state of a task run.",
        columns("""
key_id                id       number of the key, as in keys
run_id                id       Dask's number of the attempt
worker_id             id       row of workers, from 0
observer              text     who recorded it: worker, scheduler
state                 text     the state that began
time                  time     when
"""),
    ),
    TableSchema(
        "transfers",
        "A row a message that brought results from another worker.",
        (
            *WHO,
            *columns("""
start                 time     it was asked for
duration              seconds  until it was there
"""),
            *recorded(TRANSFER, without={"keys"}),
            *columns("keys ids key_id of each result"),
        ),
    ),
    TableSchema(
        "workers",
        "A row a life of a worker process; the scheduler is one of them.",
        columns("""
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
"""),
    ),
    TableSchema(
        "steps",
        "A row each time that a step of the pipeline was entered.",
        columns("""
step                  text     the path of the steps' names
name                  text     its own name
parent                id       row, from 0, of the step around it; null: none
start                 time     it was entered
duration              seconds  until it was left
id                    id       its number
"""),
    ),
    TableSchema("graphs", GRAPH.about, (*TIME, *recorded(GRAPH))),
    TableSchema("steals", STEAL.about, (*TIME, *recorded(STEAL))),
    TableSchema("unsent", UNSENT_TASKS.about, (*TIME, *recorded(UNSENT_TASKS))),
    TableSchema(
        "events",
        "A row an event that user code recorded, of a kind of its own.",
        columns("""
name                  text     what user code called it
kind                  text     span, instant; begin or end where the other is missing
time                  time     when it began
duration              seconds  how long it took; null where nothing tells
process               text     its process_id
thread                text     its thread_id
args                  text     its args, as JSON
"""),
    ),
    *READINGS,
)
