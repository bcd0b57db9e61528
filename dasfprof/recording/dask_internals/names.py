"""Every private name of Dask that the recorder uses, by what a trace lacks without it.

A name is private if Dask's documentation does not describe it. Hooks beside this module write the
attributes themselves, and ask here whether they are there.
"""

from __future__ import annotations

from dasfprof.recording.dask_internals.name_lookup import Names

WORKER, MONITOR, ANNOTATION = "TracePlugin", "ResourceMonitor", "GPUAnnotationPlugin"
SCHEDULER, STEPS = "SchedulerPlugin", "StepRecorder"

_MACHINE, _SPEC = "distributed.worker_state_machine", "dask._task_spec"
_WORKER = "distributed.worker:Worker"
_SCHEDULER, _STATE = "distributed.scheduler:Scheduler", "distributed.scheduler:SchedulerState"
_SPILL, _SHUFFLE = "distributed.spill:SpillBuffer", "distributed.shuffle"
_GRAPH = "dask.highlevelgraph:HighLevelGraph"
_FRAMES = "dask.dataframe.dask_expr"

# --- task runs and transfers ---------------------------------------------------------------------

METERING = Names(
    "no seconds of CPU, network, disk and (de)serialisation of task runs, and no transfers",
    (WORKER,),
    f"{_WORKER}._finalize_metrics",
    f"{_MACHINE}:ExecuteSuccessEvent",
    f"{_MACHINE}:ExecuteFailureEvent",
    f"{_MACHINE}:RescheduleEvent",
)
#: Without all three the state of a transfer would be wrong.
TRANSFERS = Names(
    "no transfers between workers",
    (WORKER,),
    f"{_MACHINE}:GatherDepDoneEvent",
    f"{_MACHINE}:GatherDepSuccessEvent",
    f"{_MACHINE}:GatherDepBusyEvent",
)
RUN_TASK = Names(
    "no waits of tasks for a core, and no NVTX ranges",
    (WORKER, ANNOTATION),
    "distributed.worker:_run_task_simple",
    f"{_SPEC}:GraphNode.key",
)
RUN_COROUTINE = Names(
    "no NVTX ranges of coroutines", (ANNOTATION,), "distributed.worker:_run_task_async"
)
RUN_ACTOR = Names("no stacks of calls of actors", (WORKER,), "distributed.worker:_run_actor")
HANDLERS = Names(
    "no calls of actors; files of workers whose disks the client does not see do not reach the "
    "scheduler",
    (WORKER, SCHEDULER),
    "distributed.core:Server.handlers",
)
ACTOR_CALLS = Names("no calls of actors", (WORKER,), f"{_WORKER}.actor_execute")
CODE = Names(
    "no code of functions, or only that of the outermost function of a task",
    (WORKER,),
    f"{_MACHINE}:TaskState.run_spec",
    f"{_SPEC}:GraphNode",
)
ARGUMENTS = Names(
    "arguments of tasks are told by the type of what stands for them in the graph",
    (WORKER,),
    f"{_SPEC}:TaskRef",
    f"{_SPEC}:Alias",
    f"{_SPEC}:DataNode",
)
CLOCK = Names(
    "task runs are timed by the scheduler's clock as Dask estimates it, so that their order "
    "between workers is less certain",
    (WORKER,),
    f"{_WORKER}.scheduler_delay",
)
P2P = Names(
    "no bytes that P2P shuffles move",
    (WORKER,),
    f"{_SHUFFLE}._comms:CommShardsBuffer",
    f"{_SHUFFLE}._comms:CommShardsBuffer.process",
    f"{_SHUFFLE}._comms:CommShardsBuffer.send",
    f"{_SHUFFLE}._core:ShuffleRun.local_address",
)
P2P_ERROR = Names(
    "failed messages of P2P shuffles count as sent",
    (WORKER,),
    f"{_SHUFFLE}._buffer:ShardsBuffer._exception",
)

# --- memory --------------------------------------------------------------------------------------

MEMORY_LIMITS = Names(
    "the workers' memory limits are unknown", (WORKER, MONITOR), f"{_WORKER}.memory_manager"
)
SPILLING = Names(
    "spilled bytes, or seconds and bytes of spilling, read 0",
    (MONITOR,),
    f"{_SPILL}.spilled_total",
    f"{_SPILL}.cumulative_metrics",
)
RESULTS_IN_MEMORY = Names(
    "no dtype and shape of results where outcomes are not metered", (WORKER,), f"{_SPILL}.fast"
)

# --- what has begun and not ended ----------------------------------------------------------------

UNDER_WAY = Names(
    "tasks that have begun and not ended are unknown",
    (WORKER,),
    f"{_WORKER}.active_threads",
    f"{_WORKER}.active_threads_lock",
    f"{_MACHINE}:TaskState.start_time",
)
HELD_BY_COROUTINES = Names(
    "the locks that tasks which are coroutines hold are unknown",
    (WORKER,),
    "distributed.semaphore:Semaphore._acquire",
)
LAST_TICK = Names(
    "event loops that are blocked are not recorded",
    (WORKER, SCHEDULER),
    "distributed.core:Server._last_tick",
)
SCHEDULER_STATE = Names(
    "what the scheduler has under way is unknown",
    (SCHEDULER,),
    f"{_STATE}.task_prefixes",
    f"{_STATE}.unrunnable",
)
TRANSITIONS = Names(
    "what the scheduler has under way is recorded every 10 s only",
    (SCHEDULER,),
    f"{_STATE}.transition_counter",
)

# --- the cluster ---------------------------------------------------------------------------------

WORKER_PLUGINS = Names(
    "a run that is being recorded is not noticed if its scheduler plugin is gone",
    (SCHEDULER,),
    f"{_SCHEDULER}.worker_plugins",
)
REMOTE_ERRORS = Names(
    "errors of the cluster's processes are reported without their type and traceback",
    (SCHEDULER,),
    "distributed.core:clean_exception",
)
#: It makes `http_application`, which takes the routes of the page.
HTTP_SERVER = Names(
    "no page /dasfprof on Dask's dashboard",
    (SCHEDULER,),
    "distributed.node:ServerNode.start_http_server",
)
PLOTS = Names(
    "the page /dasfprof is not in the list of plots of JupyterLab's Dask extension",
    (SCHEDULER,),
    "distributed.http.scheduler.info:IndividualPlots",
)

# --- steps ---------------------------------------------------------------------------------------

GRAPH = Names(
    "tasks of arrays, bags and delayed functions belong to the step that computes them, not to "
    "the one that built them",
    (STEPS,),
    _GRAPH,
    f"{_GRAPH}.from_collections",
)
SUBMISSIONS = Names(
    "tasks whose layer no step built, such as futures, belong to no step",
    (STEPS,),
    "distributed.client:Client._graph_to_futures",
)
#: The methods that rewrite a part of a dataframe's expression, or all of it.
REWRITING = ("simplify_once", "lower_once", "rewrite", "lower_completely", "optimize")
#: Programs that have no dataframes do not import the module.
FRAMES = Names(
    "dataframe tasks may belong to the step that computes them, not to the one that built",
    (STEPS,),
    f"{_FRAMES}._collection:FrameBase",
    f"{_FRAMES}._expr:Expr",
    *(
        f"{_FRAMES}._expr:Expr.{name}"
        for name in ("_name", "operands", "operand", "_parameters", *REWRITING)
    ),
    is_imported=False,
)
#: What optimises collections in the client's process; dataframes have a method of their own.
OPTIMISING = Names(
    "how long a program optimises its graphs is unknown",
    (STEPS,),
    "dask._expr:Expr.optimize",
    is_imported=False,
)

NAMES = tuple(value for value in tuple(vars().values()) if isinstance(value, Names))


def missing(plugin: str) -> dict[str, str]:
    """Return the paths of the names that a plugin uses and this Dask lacks, with the losses.

    Attributes of a missing class are left out.
    """
    gone = {path: one.loss for one in NAMES if plugin in one.plugins for path in one.gone()}
    return {path: loss for path, loss in gone.items() if path.rpartition(".")[0] not in gone}
