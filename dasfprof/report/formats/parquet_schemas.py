"""What is in the Parquet files: `SCHEMAS`; ``PARQUET.md`` says the same to their readers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dasfprof.schema import profiles, resources, steps, tasks, under_way
from dasfprof.schema.events import EventKind

# --- How the Parquet files are described: tables, columns, their types and meanings ---------------

#: What a column of each kind holds, in words.
KINDS = {
    "id": "whole number",
    "count": "whole number",
    "bytes": "whole number of bytes",
    "seconds": "floating-point seconds",
    "number": "floating point",
    "time": "timestamp in microseconds, UTC",
    "text": "text",
    "key": "text",
    "stimulus": "text",
    "flag": "boolean",
    "ids": "list of whole numbers",
}


@dataclass(frozen=True)
class Column:
    """A column of a file."""

    name: str
    #: One of `KINDS`.
    kind: str
    about: str


@dataclass(frozen=True)
class TableSchema:
    """A file, named as its table."""

    name: str
    about: str
    columns: tuple[Column, ...]


def columns(text: str) -> tuple[Column, ...]:
    """Declare columns that the analysis makes: a line each, a name, a kind and what it is."""
    lines = (line.split(None, 2) for line in text.splitlines() if line)
    return tuple(Column(*words) for words in lines)


def recorded(
    event: EventKind, *, without: Collection[str] = (), renamed: Mapping[str, str] | None = None
) -> tuple[Column, ...]:
    """Return the columns of what was recorded, described as where they are declared.

    Parameters
    ----------
    event
        The event kind.
    without
        Names of columns to leave out.
    renamed
        Names in the table, by the names in the event.
    """
    names = renamed or {}
    return tuple(
        Column(names.get(column.name, column.name), _KIND_OF.get(column.kind, column.kind), about)
        for column in event.columns
        if column.in_tables and column.name not in without
        for about in [column.about]
    )


#: What objects and lists of keys are in a file.
_KIND_OF: dict[str, str] = {"object": "text", "keys": "ids"}


# --- What is in the Parquet files: SCHEMAS; PARQUET.md says the same to their readers -------------

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
    *recorded(tasks.TASK_RUN, without={"key", "run_id", "worker"}, renamed=_RENAMED),
)

#: What tells which attempt at which key a row is about, and on which worker.
_KEY = columns("""
key_id                id       number of the key, as in keys
key                   key      the key, as Python writes it
""")
_ATTEMPT = (
    *_KEY,
    *columns("run_id id Dask's number of the attempt; with the key it identifies a task run"),
)
_WHO = columns("""
worker_id             id       row of workers, from 0
host                  text     host of the worker
worker                text     label of the worker
""")
_TIME = columns("time time when")
_TASK = columns("""
function              text     Dask's key_split of the key
step                  text     of the pipeline; of nested ones the path
line                  text     of the program, that built it: line of lines; null: see no_line
no_line               text     why no line is known
""")
#: What the numbers of stacks and keys are, once those of all files are in tables.
_OF_A_THREAD = columns("""
stack                 id       row of stacks, from 0; null: unknown
waits_keys            ids      key_id of the first 100 futures that it waits for
""")
#: The plugins whose events are a worker's own.
_OF_WORKERS = ("TracePlugin", "ResourceMonitor")


def _events(
    name: str,
    event: EventKind,
    *more: Column,
    about: str = "",
    time: tuple[Column, ...] = _TIME,
    without: Collection[str] = (),
) -> TableSchema:
    """Describe a table with a row for each event of a kind.

    Parameters
    ----------
    name, event
        The table and the kind.
    more
        Columns that the analysis adds, behind the recorded ones.
    about
        What a row is, if not an event as it was recorded.
    time
        The columns that tell when it was.
    without
        Names of recorded columns that the table lacks.
    """
    names = {column.name for column in event.columns}
    ours = event.recorder in _OF_WORKERS
    first = (*(_ATTEMPT if ours and "run_id" in names else ()), *(_WHO if ours else ()), *time)
    last = (*(column for column in _OF_A_THREAD if column.name in names), *more)
    placed = {column.name for column in (*first, *_OF_A_THREAD)}
    kept = recorded(event, without={*placed, *without})
    return TableSchema(name, about or event.about, (*first, *kept, *last))


SCHEMAS = (
    TableSchema(
        "tasks",
        "A row a task run: one attempt to run a key on a worker.",
        (
            *_ATTEMPT,
            *_WHO,
            *_TASK,
            *columns("""
source                text     who recorded it: worker, or scheduler where no worker's file is there
start                 time     its function began
duration              seconds  of its function
"""),
            *recorded(tasks.COMPUTE, without={"key", "run_id", "dependencies"}),
            *columns("dependencies ids key_id of each dependency; null where nobody told"),
            *_SCHEDULER,
        ),
    ),
    TableSchema(
        "scheduler_only",
        "Task runs that the scheduler saw and no worker's file holds.",
        (
            *_ATTEMPT,
            *_WHO,
            *_TASK,
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
    _events(
        "transfers",
        tasks.TRANSFER,
        *columns("keys ids key_id of each result"),
        about="A row a message that brought results from another worker.",
        time=columns("""
start                 time     it was asked for
duration              seconds  until it was there
"""),
        without={"keys"},
    ),
    _events(
        "shuffle_messages",
        tasks.SHUFFLE_MESSAGE,
        about="A row a message of a P2P shuffle from one worker to another.",
        time=columns("""
start                 time     it was sent
duration              seconds  until the receiver had taken it in
"""),
    ),
    _events(
        "actor_calls",
        tasks.ACTOR_CALL,
        about="A row a call of a method of an actor that is on the worker.",
        time=columns("""
start                 time     it arrived at the worker
duration              seconds  until its answer
key_id                id       of the actor
"""),
        without={"key"},
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
                "\n".join(
                    f"{name} bytes {of}; null: none" for name, of in resources.MEMORY_SIZES.items()
                )
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
silent                seconds  without a heartbeat, if the scheduler gave it up for that
memory_group          text     the control group that limits its process; null: none, or unknown
group_limit           bytes    of it; null: none, or unknown
thread_limits         text     OMP_NUM_THREADS and its like, JSON; null: not recorded
job                   text     variables that name its job, such as SLURM_JOB_ID, JSON; null: none
resources             text     what it has that tasks may ask for, JSON; null: not recorded
last_error            text     the last error that Dask logged in its process, not in a task
last_error_time       time     when it did
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
    TableSchema(
        "lines",
        "A row a line of the program that built something or called Dask, and a group of lines "
        "whose layers Dask fused.",
        columns("""
line                  text     its name, with those of all in a group
file                  text     where it is; of a group the last one's, as all that follows
number                id       the line in it
code                  text     the function that it is in
text                  text     of the line; null: see missing
missing               text     why there is no text
cell                  text     of a notebook: the cell, as In[3]
library               text     the innermost file of a library that it called and that called Dask
library_line          id       the line in it; -1: none
library_code          text     the function that it is in
fused                 text     the other lines of a group, as Python writes them
"""),
    ),
    _events("graphs", tasks.GRAPH),
    _events("graphs_sent", steps.GRAPH_SENT),
    _events("client_calls", steps.CLIENT_CALLS),
    _events("sent_values", steps.SENT_VALUE),
    _events("functions_sent", steps.FUNCTION_SENT),
    _events("steals", tasks.STEAL),
    _events("releases", tasks.RESULT_RELEASED),
    _events("copies_dropped", tasks.COPY_DROPPED, time=(*_KEY, *_WHO, *_TIME)),
    _events("cluster_changes", tasks.CLUSTER_CHANGE),
    _events("unsent", tasks.UNSENT_TASKS),
    _events("logs", tasks.LOG_RECORD),
    _events("tracebacks", tasks.TRACEBACK),
    _events("arguments", tasks.TASK_ARGUMENTS),
    _events("storage", tasks.STORAGE),
    _events("unpickled", tasks.TASK_UNPICKLED),
    _events("serialised", tasks.RESULT_SERIALISED),
    _events("function_code", tasks.FUNCTION_CODE),
    _events(
        "call_profiles",
        profiles.CALL_PROFILE,
        *columns("path text path of the file; null: there is none"),
        without={"file"},
    ),
    _events(
        "under_way",
        under_way.TASK_UNDER_WAY,
        about="A row a task run over a second whose end no worker recorded: the last that was "
        "seen.",
    ),
    _events("under_way_history", under_way.TASK_UNDER_WAY),
    _events("locks_held", under_way.LOCK_HELD),
    _events("loops_blocked", under_way.LOOP_BLOCKED),
    _events("scheduler_states", under_way.SCHEDULER_STATE),
    _events("clients_under_way", under_way.CLIENT_UNDER_WAY),
    _events("task_samples", profiles.TASK_SAMPLE),
    _events("loop_samples", profiles.LOOP_SAMPLE),
    _events("client_samples", profiles.CLIENT_SAMPLE),
    TableSchema(
        "stacks",
        "A row a distinct stack.",
        (
            *columns("number id its number, from 0"),
            *recorded(under_way.STACK, without={"number", "parent"}),
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
    _events(
        "samples",
        resources.RESOURCE_USAGE,
        *columns(
            "host_read flag it read the host itself; false: what the host's reader had read last"
        ),
    ),
    _events("managed_memory", resources.MANAGED_MEMORY),
    _events("clocks", tasks.CLOCK),
    _events("disk_usage", resources.DISK_USAGE),
    _events(
        "host_processes",
        resources.HOST_PROCESS,
        *columns("ours flag it is the run's own; false: another program's"),
    ),
    _events("gpu_devices", resources.GPU_DEVICES),
    _events("gpu_usage", resources.GPU_USAGE),
    _events("device_memory", resources.DEVICE_MEMORY),
)
