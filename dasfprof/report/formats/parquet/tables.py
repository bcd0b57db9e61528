"""What is in the Parquet files: `SCHEMAS`; ``PARQUET.md`` says the same to their readers."""

from __future__ import annotations

from dasfprof.report.formats.parquet.readings import READINGS
from dasfprof.report.formats.parquet.schema import TIME, WHO, TableSchema, columns, recorded
from dasfprof.schema.allocations import ALLOCATION, TRACED_FUNCTION
from dasfprof.schema.call_profiles import CALL_PROFILE
from dasfprof.schema.stack_samples import CLIENT_SAMPLE, LOOP_SAMPLE, TASK_SAMPLE
from dasfprof.schema.steps import GRAPH_SENT
from dasfprof.schema.tasks import (
    ACTOR_CALL,
    COMPUTE,
    FUNCTION_CODE,
    GRAPH,
    LOG_RECORD,
    SHUFFLE_MESSAGE,
    STEAL,
    TASK_ARGUMENTS,
    TASK_RUN,
    TRACEBACK,
    TRANSFER,
    UNSENT_TASKS,
)
from dasfprof.schema.under_way import (
    CLIENT_UNDER_WAY,
    LOOP_BLOCKED,
    SCHEDULER_STATE,
    STACK,
    TASK_UNDER_WAY,
)
from dasfprof.schema.worker_memory import MEMORY_SIZES

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

#: What the numbers of stacks and keys are, once those of all files are in tables.
_OF_A_THREAD = columns("""
stack                 id       row of stacks, from 0; null: unknown
waits_keys            ids      key_id of the first 100 futures that it waits for
""")
_PLACED = {"stack", "waits_keys"}

_UNDER_WAY = (
    *_KEY,
    *_KEY_TEXT,
    *columns("run_id id Dask's number of the attempt; with the key it identifies a task run"),
    *WHO,
    *TIME,
    *recorded(TASK_UNDER_WAY, without={"key", "run_id", *_PLACED}),
    *_OF_A_THREAD,
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
        "shuffle_messages",
        "A row a message of a P2P shuffle from one worker to another.",
        (
            *WHO,
            *columns("""
start                 time     it was sent
duration              seconds  until the receiver had taken it in
"""),
            *recorded(SHUFFLE_MESSAGE),
        ),
    ),
    TableSchema(
        "actor_calls",
        "A row a call of a method of an actor that is on the worker.",
        (
            *WHO,
            *columns("""
start                 time     it arrived at the worker
duration              seconds  until its answer
key_id                id       of the actor
"""),
            *recorded(ACTOR_CALL, without={"key"}),
        ),
    ),
    TableSchema(
        "workers",
        "A row a life of a worker process; the scheduler is one of them.",
        (
            *columns("""
worker_id             id       its number, from 0
host                  text     name of its host
worker                text     its label
kind                  text     worker, scheduler, or host for facts of no worker
name                  text     as Dask calls it
address               text     as Dask knows it
nthreads              count    its threads
"""),
            *columns(
                "\n".join(f"{name} bytes {of}; null: none" for name, of in MEMORY_SIZES.items())
            ),
            *columns("""
pid                   count    its process
boot_id               text     of its host: equal ones share a clock
first_seen            time     its earliest fact
last_seen             time     its latest fact
joined                time     it joined the cluster, by the scheduler
left                  time     it left, by the scheduler
left_reason           text     why
exit_code             number   of its process, by its nanny; negative: the signal; null: unknown
exit_reason           text     why its nanny ended it
closed                flag     its files were finished; false: they end early
"""),
        ),
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
    TableSchema("graphs_sent", GRAPH_SENT.about, (*TIME, *recorded(GRAPH_SENT))),
    TableSchema("steals", STEAL.about, (*TIME, *recorded(STEAL))),
    TableSchema("unsent", UNSENT_TASKS.about, (*TIME, *recorded(UNSENT_TASKS))),
    TableSchema(
        "logs",
        LOG_RECORD.about,
        (
            *_KEY,
            *_KEY_TEXT,
            *columns("run_id id Dask's number of the attempt; with the key it identifies a run"),
            *WHO,
            *TIME,
            *recorded(LOG_RECORD, without={"key", "run_id"}),
        ),
    ),
    TableSchema(
        "tracebacks",
        TRACEBACK.about,
        (
            *_KEY,
            *_KEY_TEXT,
            *columns("run_id id Dask's number of the attempt; with the key it identifies a run"),
            *WHO,
            *TIME,
            *recorded(TRACEBACK, without={"key", "run_id"}),
        ),
    ),
    TableSchema(
        "arguments",
        TASK_ARGUMENTS.about,
        (
            *_KEY,
            *_KEY_TEXT,
            *columns("run_id id Dask's number of the attempt; with the key it identifies a run"),
            *WHO,
            *TIME,
            *recorded(TASK_ARGUMENTS, without={"key", "run_id"}),
        ),
    ),
    TableSchema(
        "function_code",
        FUNCTION_CODE.about,
        (*WHO, *TIME, *recorded(FUNCTION_CODE)),
    ),
    TableSchema(
        "call_profiles",
        CALL_PROFILE.about,
        (
            *WHO,
            *TIME,
            *recorded(CALL_PROFILE, without={"file"}),
            *columns("path text path of the file; null: there is none"),
        ),
    ),
    TableSchema(
        "allocations",
        ALLOCATION.about,
        (
            *_KEY,
            *_KEY_TEXT,
            *columns("run_id id Dask's number of the attempt; with the key it identifies a run"),
            *WHO,
            *TIME,
            *recorded(ALLOCATION, without={"key", "run_id", *_PLACED}),
            _OF_A_THREAD[0],
        ),
    ),
    TableSchema(
        "traced_functions", TRACED_FUNCTION.about, (*WHO, *TIME, *recorded(TRACED_FUNCTION))
    ),
    TableSchema(
        "under_way",
        "A row a task run over a second whose end no worker recorded: the last that was seen.",
        _UNDER_WAY,
    ),
    TableSchema("under_way_history", TASK_UNDER_WAY.about, _UNDER_WAY),
    TableSchema(
        "loops_blocked",
        LOOP_BLOCKED.about,
        (*WHO, *TIME, *recorded(LOOP_BLOCKED, without=_PLACED), _OF_A_THREAD[0]),
    ),
    TableSchema("scheduler_states", SCHEDULER_STATE.about, (*TIME, *recorded(SCHEDULER_STATE))),
    TableSchema(
        "clients_under_way",
        CLIENT_UNDER_WAY.about,
        (*TIME, *recorded(CLIENT_UNDER_WAY, without=_PLACED), *_OF_A_THREAD),
    ),
    TableSchema(
        "task_samples",
        TASK_SAMPLE.about,
        (*WHO, *TIME, *recorded(TASK_SAMPLE, without=_PLACED), _OF_A_THREAD[0]),
    ),
    TableSchema(
        "loop_samples",
        LOOP_SAMPLE.about,
        (*WHO, *TIME, *recorded(LOOP_SAMPLE, without=_PLACED), _OF_A_THREAD[0]),
    ),
    TableSchema(
        "client_samples",
        CLIENT_SAMPLE.about,
        (*TIME, *recorded(CLIENT_SAMPLE, without=_PLACED), _OF_A_THREAD[0]),
    ),
    TableSchema(
        "stacks",
        "A row a distinct stack.",
        (
            *columns("number id its number, from 0"),
            *recorded(STACK, without={"number", "parent"}),
        ),
    ),
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
