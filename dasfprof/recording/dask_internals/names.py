"""Every private name of Dask that the recorder uses: its path, its purpose, the loss without it.

A name is private if Dask's documentation does not describe it. A module is imported when a name in
it is looked up, and looking up never raises.
"""

from __future__ import annotations

from dasfprof.recording.dask_internals.dask_name import DaskName

WORKER, MONITOR, ANNOTATION = "TracePlugin", "ResourceMonitor", "GPUAnnotationPlugin"
SCHEDULER, STEPS = "SchedulerPlugin", "StepRecorder"

_STATE_MACHINE = "distributed.worker_state_machine"
_NO_METERING = (
    "no seconds of CPU, network, disk and (de)serialisation of task runs, and no transfers"
)
_NO_TRANSFERS = "no transfers between workers"
_NO_P2P = "no bytes that P2P shuffles move"
_NO_ACTOR_CALLS = "no calls of actors"
_NO_FRAMES = "dataframe tasks may belong to the step that computes them, not to the one that built"

FINALIZE_METRICS = DaskName(
    "distributed.worker:Worker._finalize_metrics",
    (WORKER,),
    "called with each outcome and its seconds, after a task run or a transfer",
    _NO_METERING,
)
EXECUTE_SUCCESS, EXECUTE_FAILURE, RESCHEDULE = (
    DaskName(f"{_STATE_MACHINE}:{event}", (WORKER,), "outcome of a task run", _NO_METERING)
    for event in ("ExecuteSuccessEvent", "ExecuteFailureEvent", "RescheduleEvent")
)
GATHER_DONE, GATHER_SUCCESS, GATHER_BUSY = (
    DaskName(f"{_STATE_MACHINE}:{event}", (WORKER,), "outcome of a transfer", _NO_TRANSFERS)
    for event in ("GatherDepDoneEvent", "GatherDepSuccessEvent", "GatherDepBusyEvent")
)
RUN_TASK = DaskName(
    "distributed.worker:_run_task_simple",
    (WORKER, ANNOTATION),
    "runs a task in its thread",
    "no waits of tasks for a core, and no NVTX ranges",
)
RUN_ACTOR = DaskName(
    "distributed.worker:_run_actor",
    (WORKER,),
    "runs a call of an actor in its thread",
    "no stacks of calls of actors",
)
HANDLERS = DaskName(
    "distributed.core:Server.handlers",
    (WORKER, SCHEDULER),
    "what answers each kind of message",
    f"{_NO_ACTOR_CALLS}; files of workers whose disks the client does not see do not reach the "
    "scheduler",
)
ACTOR_EXECUTE = DaskName(
    "distributed.worker:Worker.actor_execute",
    (WORKER,),
    "answers calls of actors",
    _NO_ACTOR_CALLS,
)
RUN_COROUTINE = DaskName(
    "distributed.worker:_run_task_async",
    (ANNOTATION,),
    "runs a task that is a coroutine",
    "no NVTX ranges of coroutines",
)
TASK_KEY = DaskName(
    "dask._task_spec:GraphNode.key",
    (WORKER, ANNOTATION),
    "finds which task runs in a thread",
    "no waits of tasks for a core, and no NVTX ranges",
)
RUN_SPEC = DaskName(
    f"{_STATE_MACHINE}:TaskState.run_spec",
    (WORKER,),
    "the functions that a task calls",
    "no code of functions",
)
GRAPH_NODE = DaskName(
    "dask._task_spec:GraphNode",
    (WORKER,),
    "a part of what a task runs",
    "code of the outermost function of a task alone",
)
TASK_REF, ALIAS, DATA_NODE = (
    DaskName(
        f"dask._task_spec:{name}",
        (WORKER,),
        "tells which arguments of a task are results of others",
        "arguments of tasks are told by the type of what stands for them in the graph",
    )
    for name in ("TaskRef", "Alias", "DataNode")
)
SCHEDULER_DELAY = DaskName(
    "distributed.worker:Worker.scheduler_delay",
    (WORKER,),
    "Dask's correction of the worker's clock, to subtract it again",
    "task runs are timed by the scheduler's clock as Dask estimates it, so that their order "
    "between workers is less certain",
)
MEMORY_MANAGER = DaskName(
    "distributed.worker:Worker.memory_manager",
    (WORKER, MONITOR),
    "the worker's memory limit, and from which sizes on it spills and pauses",
    "the workers' memory limits are unknown",
)
SPILLED_TOTAL = DaskName(
    "distributed.spill:SpillBuffer.spilled_total",
    (MONITOR,),
    "bytes of results on disk",
    "spilled bytes read 0",
)
SPILL_METRICS = DaskName(
    "distributed.spill:SpillBuffer.cumulative_metrics",
    (MONITOR,),
    "seconds and bytes of writes to and reads from disk",
    "seconds and bytes of spilling read 0",
)
SPILL_FAST = DaskName(
    "distributed.spill:SpillBuffer.fast",
    (WORKER,),
    "reads a result without moving it, where outcomes are not metered",
    "no dtype and shape of results where outcomes are not metered",
)
P2P_BUFFER = DaskName(
    "distributed.shuffle._comms:CommShardsBuffer",
    (WORKER,),
    "holds what a P2P shuffle sends from a worker",
    _NO_P2P,
)
P2P_SEND = DaskName(
    "distributed.shuffle._comms:CommShardsBuffer.process",
    (WORKER,),
    "sends a message of a P2P shuffle",
    _NO_P2P,
)
P2P_SENDER = DaskName(
    "distributed.shuffle._comms:CommShardsBuffer.send",
    (WORKER,),
    "a method of the shuffle that sends",
    _NO_P2P,
)
P2P_ADDRESS = DaskName(
    "distributed.shuffle._core:ShuffleRun.local_address",
    (WORKER,),
    "the worker of a shuffle that sends",
    _NO_P2P,
)
P2P_ERROR = DaskName(
    "distributed.shuffle._buffer:ShardsBuffer._exception",
    (WORKER,),
    "why a message of a P2P shuffle did not arrive",
    "failed messages of P2P shuffles count as sent",
)
WORKER_PLUGINS = DaskName(
    "distributed.scheduler:Scheduler.worker_plugins",
    (SCHEDULER,),
    "holds the plugins that new workers get",
    "a run that is being recorded is not noticed if its scheduler plugin is gone",
)
CLEAN_EXCEPTION = DaskName(
    "distributed.core:clean_exception",
    (SCHEDULER,),
    "reads the exception that a call to a process of the cluster raised",
    "errors of the cluster's processes are reported without their type and traceback",
)
HTTP_SERVER = DaskName(
    "distributed.node:ServerNode.start_http_server",
    (SCHEDULER,),
    "makes `http_application`, which takes the routes of the run's page on Dask's dashboard",
    "no page /dasfprof on Dask's dashboard",
)
INDIVIDUAL_PLOTS = DaskName(
    "distributed.http.scheduler.info:IndividualPlots",
    (SCHEDULER,),
    "lists the dashboard's plots for JupyterLab's Dask extension",
    "the page /dasfprof is not in the list of plots of JupyterLab's Dask extension",
)
GRAPH = DaskName(
    "dask.highlevelgraph:HighLevelGraph",
    (STEPS,),
    "created where a program builds arrays, bags and delayed functions",
    "tasks of arrays, bags and delayed functions belong to the step that computes them, not to "
    "the one that built them",
)
FROM_COLLECTIONS = DaskName(
    "dask.highlevelgraph:HighLevelGraph.from_collections", (STEPS,), GRAPH.purpose, GRAPH.loss
)
GRAPH_TO_FUTURES = DaskName(
    "distributed.client:Client._graph_to_futures",
    (STEPS,),
    "sends a graph to the cluster",
    "tasks whose layer no step built, such as futures, belong to no step",
)

_NO_TASKS = "tasks that have begun and not ended are unknown"
_NO_STATE = "what the scheduler has under way is unknown"

ACTIVE_THREADS = DaskName(
    "distributed.worker:Worker.active_threads", (WORKER,), "which task runs in a thread", _NO_TASKS
)
ACTIVE_THREADS_LOCK = DaskName(
    "distributed.worker:Worker.active_threads_lock",
    (WORKER,),
    "keeps a task from ending while its thread is looked at",
    _NO_TASKS,
)
START_TIME = DaskName(
    f"{_STATE_MACHINE}:TaskState.start_time", (WORKER,), "when a task was given a thread", _NO_TASKS
)
ACQUIRE = DaskName(
    "distributed.semaphore:Semaphore._acquire",
    (WORKER,),
    "called when a coroutine acquires a lock or semaphore",
    "the locks that tasks which are coroutines hold are unknown",
)
LAST_TICK = DaskName(
    "distributed.core:Server._last_tick",
    (WORKER, SCHEDULER),
    "when an event loop last turned",
    "event loops that are blocked are not recorded",
)
TASK_PREFIXES = DaskName(
    "distributed.scheduler:SchedulerState.task_prefixes",
    (SCHEDULER,),
    "number of tasks by function and state",
    _NO_STATE,
)
UNRUNNABLE = DaskName(
    "distributed.scheduler:SchedulerState.unrunnable",
    (SCHEDULER,),
    "tasks that no worker may run",
    _NO_STATE,
)
TRANSITION_COUNTER = DaskName(
    "distributed.scheduler:SchedulerState.transition_counter",
    (SCHEDULER,),
    "whether tasks changed their state",
    "what the scheduler has under way is recorded every 10 s only",
)

_COLLECTION, _EXPR = "dask.dataframe.dask_expr._collection", "dask.dataframe.dask_expr._expr"


def _of_frames(path: str, purpose: str) -> DaskName:
    return DaskName(path, (STEPS,), purpose, _NO_FRAMES, optional_module=True)


FRAME = _of_frames(f"{_COLLECTION}:FrameBase", "created where a program builds dataframes")
EXPR = _of_frames(f"{_EXPR}:Expr", "a part of a dataframe's expression")
EXPR_NAME = _of_frames(f"{_EXPR}:Expr._name", "identifies an expression")
EXPR_OPERANDS = _of_frames(f"{_EXPR}:Expr.operands", "the parts of an expression")
EXPR_OPERAND = _of_frames(f"{_EXPR}:Expr.operand", "finds the keys of a graph")
EXPR_PARAMETERS = _of_frames(f"{_EXPR}:Expr._parameters", "finds the keys of a graph")
#: The methods that rewrite a part of a dataframe's expression, or all of it.
REWRITING = tuple(
    _of_frames(f"{_EXPR}:Expr.{method}", "rewrites an expression before it runs")
    for method in ("simplify_once", "lower_once", "rewrite", "lower_completely", "optimize")
)

#: What optimises collections in the client's process; dataframes have a method of their own.
OPTIMIZE = DaskName(
    "dask._expr:Expr.optimize",
    (STEPS,),
    "optimises collections before they are sent",
    "how long a program optimises its graphs is unknown",
    optional_module=True,
)

NAMES: tuple[DaskName, ...] = (
    FINALIZE_METRICS,
    EXECUTE_SUCCESS,
    EXECUTE_FAILURE,
    RESCHEDULE,
    GATHER_DONE,
    GATHER_SUCCESS,
    GATHER_BUSY,
    RUN_TASK,
    RUN_ACTOR,
    HANDLERS,
    ACTOR_EXECUTE,
    RUN_COROUTINE,
    TASK_KEY,
    RUN_SPEC,
    GRAPH_NODE,
    TASK_REF,
    ALIAS,
    DATA_NODE,
    SCHEDULER_DELAY,
    MEMORY_MANAGER,
    SPILLED_TOTAL,
    SPILL_METRICS,
    SPILL_FAST,
    P2P_BUFFER,
    P2P_SEND,
    P2P_SENDER,
    P2P_ADDRESS,
    P2P_ERROR,
    WORKER_PLUGINS,
    CLEAN_EXCEPTION,
    ACTIVE_THREADS,
    ACTIVE_THREADS_LOCK,
    START_TIME,
    ACQUIRE,
    LAST_TICK,
    TASK_PREFIXES,
    UNRUNNABLE,
    TRANSITION_COUNTER,
    HTTP_SERVER,
    INDIVIDUAL_PLOTS,
    GRAPH,
    FROM_COLLECTIONS,
    GRAPH_TO_FUTURES,
    FRAME,
    EXPR,
    EXPR_NAME,
    EXPR_OPERANDS,
    EXPR_OPERAND,
    EXPR_PARAMETERS,
    *REWRITING,
    OPTIMIZE,
)


def missing(plugin: str) -> dict[str, str]:
    """Return the paths of the names that a plugin uses and this Dask lacks, with the losses.

    Attributes of a missing class are left out.
    """
    gone = {name.path: name.loss for name in NAMES if plugin in name.plugins and not name.exists()}
    return {path: loss for path, loss in gone.items() if path.rpartition(".")[0] not in gone}


def has_under_way(plugin: str) -> bool:
    """Return whether what is under way can be recorded on a worker, or on the scheduler."""
    worker, scheduler = (
        (ACTIVE_THREADS, ACTIVE_THREADS_LOCK, START_TIME),
        (TASK_PREFIXES, UNRUNNABLE),
    )
    return all(name.exists() for name in (worker if plugin == WORKER else scheduler))
