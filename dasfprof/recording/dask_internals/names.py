"""Every private name of Dask that the recorder uses, by what a trace lacks without it.

A name is private if Dask's documentation does not describe it. Hooks beside this module write the
attributes themselves, and ask here whether they are there.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

# --- `Names`: private names of Dask with one purpose, and whether this Dask has them --------------
#
# A module is imported when a name in it is looked up, and looking up never raises.

_ABSENT = object()


class Names:
    """Private names of Dask, of which a trace lacks the same where one is gone.

    Parameters
    ----------
    loss
        What a trace lacks.
    plugins
        Those that use them, by their names in the headers of files.
    *paths
        Modules and, after a colon, the name in it, such as ``Class.attribute``.
    is_imported
        Whether to import modules: programs may run without those where it is False.
    """

    def __init__(
        self, loss: str, plugins: tuple[str, ...], *paths: str, is_imported: bool = True
    ) -> None:
        self.loss, self.plugins, self.paths = loss, plugins, paths
        self._is_imported = is_imported

    def find(self, name: str) -> Any:
        """Return the object of a name, or of its class; None if missing, or not imported."""
        for path in self.paths:
            module, _, inside = path.partition(":")
            if f"{inside}.".startswith(f"{name}."):
                found = self._look_up(module, name)
                return None if found is _ABSENT else found
        return None

    def exist(self) -> bool:
        """Return whether Dask has all of them; True if their module is not imported."""
        return not self.gone()

    def gone(self) -> list[str]:
        """Return the paths of those that Dask does not have."""
        return [path for path in self.paths if self._is_gone(*path.split(":"))]

    def _is_gone(self, module: str, name: str) -> bool:
        is_known = self._is_imported or module in sys.modules
        return is_known and self._look_up(module, name) is _ABSENT

    def _look_up(self, module: str, names: str) -> Any:
        try:
            found: Any = sys.modules.get(module)
            if found is None:
                found = importlib.import_module(module) if self._is_imported else _ABSENT
        except Exception:
            return _ABSENT
        for name in names.split("."):
            found = _member(found, name)
        return found


def _member(owner: Any, name: str) -> Any:
    """Return an attribute of a class; for attributes of instances, what declares them."""
    found = getattr(owner, name, _ABSENT)
    if found is _ABSENT and isinstance(owner, type):
        for base in owner.__mro__:
            annotations = vars(base).get("__annotations__", {})
            if name in annotations:
                return annotations[name]
            for method in ("__new__", "__init__"):  # which set it on instances
                made = vars(base).get(method)
                code = getattr(getattr(made, "__func__", made), "__code__", None)
                if code is not None and name in code.co_names:
                    return made
    return found


WORKER, MONITOR, ANNOTATION = "TracePlugin", "ResourceMonitor", "GPUAnnotationPlugin"
SCHEDULER, STEPS = "SchedulerPlugin", "StepRecorder"
#: No file's: without these there is no run.
LOCAL_RUNS = "LocalRecorder"

_MACHINE, _SPEC = "distributed.worker_state_machine", "dask._task_spec"
_WORKER = "distributed.worker:Worker"
_SCHEDULER, _STATE = "distributed.scheduler:Scheduler", "distributed.scheduler:SchedulerState"
_SPILL, _SHUFFLE = "distributed.spill:SpillBuffer", "distributed.shuffle"
_GRAPH = "dask.highlevelgraph:HighLevelGraph"
_FRAMES, _ARRAYS = "dask.dataframe.dask_expr", "dask.array._array_expr"

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
WORKER_FUNCTIONS = Names(
    "the names of functions that run on workers outside of tasks are unknown",
    (WORKER,),
    "distributed.worker:has_arg",
)
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
UNPICKLING = Names(
    "how long workers take to unpickle tasks is unknown",
    (WORKER,),
    "distributed.protocol:loads",
    "distributed.protocol:pickle.loads",
)
SERIALISING = Names(
    "how long workers take to serialise results is unknown", (WORKER,), f"{_WORKER}.get_data"
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
    "distributed.scheduler:TaskPrefix.state_counts",
    "distributed.scheduler:TaskPrefix.all_durations",
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
    "the one that built them, and to no line",
    (STEPS,),
    _GRAPH,
    f"{_GRAPH}.from_collections",
)
SUBMISSIONS = Names(
    "tasks whose layer no step built, such as futures, belong to no step and no line",
    (STEPS,),
    "distributed.client:Client._graph_to_futures",
)
GRAPH_SIZE = Names(
    "the bytes of graphs are unknown", (STEPS,), "distributed.client:Client._send_to_scheduler"
)
WAITING = Names(
    "how long a program waits in its calls of the client, and that it calls wait, is unknown",
    (STEPS,),
    "distributed.utils:SyncMethodMixin.sync",
)
RECEIVING = Names(
    "how long results take to come to a program is part of its waiting for them",
    (STEPS,),
    "distributed.client:Client._gather_remote",
    "distributed.metrics:context_meter",
)
TOKENISING = Names(
    "how long a program makes names for tasks is unknown", (STEPS,), "dask.tokenize:_tokenize"
)
FUNCTIONS_SENT = Names(
    "the file and source of functions that are sent by value, where cloudpickle leaves them out",
    (STEPS,),
    "cloudpickle.cloudpickle:Pickler._dynamic_function_reduce",
)
#: The methods that rewrite a part of an expression, or all of it.
REWRITING = ("simplify_once", "lower_once", "rewrite", "lower_completely", "optimize")
#: And what also does in the package dask-array.
FUSING = "fuse"


def _of_expressions(base: str) -> list[str]:
    """Return what is used of a class of expressions."""
    used = ("_name", "operands", "operand", "_parameters", *REWRITING)
    return [base, *(f"{base}.{name}" for name in used)]


#: Programs that have no dataframes do not import the module.
FRAMES = Names(
    "dataframe tasks may belong to the step that computes them, not to the one that built, and to "
    "no line",
    (STEPS,),
    f"{_FRAMES}._collection:FrameBase",
    *_of_expressions(f"{_FRAMES}._expr:Expr"),
    is_imported=False,
)
_LOST_ARRAYS = (
    "tasks of array expressions may belong to the step that computes them, not to the one that "
    "built, and to no line"
)
#: Arrays with ``array.query-planning``; and those of the package dask-array.
ARRAYS = Names(
    _LOST_ARRAYS,
    (STEPS,),
    f"{_ARRAYS}._collection:Array",
    *_of_expressions(f"{_ARRAYS}._expr:ArrayExpr"),
    is_imported=False,
)
DASK_ARRAYS = Names(
    _LOST_ARRAYS,
    (STEPS,),
    "dask_array._collection:Array",
    *_of_expressions("dask_array._expr:ArrayExpr"),
    f"dask_array._expr:ArrayExpr.{FUSING}",
    is_imported=False,
)
#: The modules of collections of expressions, with the collection and the expression.
EXPRESSIONS = {
    f"{_FRAMES}._collection": (FRAMES, "FrameBase", "Expr"),
    f"{_ARRAYS}._collection": (ARRAYS, "Array", "ArrayExpr"),
    "dask_array._collection": (DASK_ARRAYS, "Array", "ArrayExpr"),
}
#: What optimises collections in the client's process; dataframes have a method of their own.
OPTIMISING = Names(
    "how long a program optimises its graphs is unknown",
    (STEPS,),
    "dask._expr:Expr.optimize",
    is_imported=False,
)

# --- estimates before a run ----------------------------------------------------------------------

#: Their absence is an error there: no trace lacks anything.
ESTIMATES = Names(
    "nothing can be estimated before a run",
    (),
    f"{_SPEC}:convert_legacy_graph",
    "dask.order:order",
    "dask.base:named_schedulers",
)

# --- Dask's own schedulers, without a cluster -----------------------------------------------------

LOCAL = Names(
    "nothing of what runs without a cluster, on Dask's own schedulers",
    (LOCAL_RUNS,),
    "dask.threaded:get_async",
    "dask.multiprocessing:get_async",
    "dask.local:get_async",
    "dask.local:SynchronousExecutor",
)

NAMES = tuple(value for value in tuple(vars().values()) if isinstance(value, Names))


def missing(plugin: str) -> dict[str, str]:
    """Return the paths of the names that a plugin uses and this Dask lacks, with the losses.

    Attributes of a missing class are left out.
    """
    gone = {path: one.loss for one in NAMES if plugin in one.plugins for path in one.gone()}
    return {path: loss for path, loss in gone.items() if path.rpartition(".")[0] not in gone}
