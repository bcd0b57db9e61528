"""All private names of Dask that the recorder uses, and what a trace lacks if a name is missing.

A name is private if Dask's documentation does not describe it. The hooks in this package use the
names as attributes. With this module, they check whether the names exist.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import Any

WORKER, MONITOR, ANNOTATION = "TracePlugin", "ResourceMonitor", "GPUAnnotationPlugin"
SCHEDULER, STEPS = "SchedulerPlugin", "StepRecorder"

_ABSENT = object()


class Names:
    """Private names of Dask that serve one purpose.

    Looking up a name may import its module, and never raises.

    Parameters
    ----------
    loss
        A description of the facts that a trace lacks if one of the names is missing.
    *places
        For each module: the module, a colon, and the names in the module with spaces in between,
        such as ``Class.attribute``.
    plugins
        The plugins that use the private names, as named in the headers of trace files.
    is_imported
        Whether to import the modules. If not, names in modules that the program has not imported
        count as existing.
    """

    def __init__(
        self,
        loss: str,
        *places: str,
        plugins: tuple[str, ...] = (WORKER,),
        is_imported: bool = True,
    ) -> None:
        self.loss, self.plugins = loss, plugins
        modules = [place.partition(":") for place in places]
        self.paths = [f"{module}:{name}" for module, _, names in modules for name in names.split()]
        self._is_imported = is_imported

    def find(self, name: str) -> Any:
        """Return the object with a name, or None if it is missing or its module is not imported.

        The name is the part of a path after the colon, such as ``Class.attribute``. It may also be
        only the class.
        """
        for path in self.paths:
            module, _, inside = path.partition(":")
            if f"{inside}.".startswith(f"{name}."):
                value = self._look_up(module, name)
                return None if value is _ABSENT else value
        return None

    def exist(self) -> bool:
        """Return whether Dask has all of these names."""
        return not self.gone()

    def gone(self) -> list[str]:
        """Return the paths of the names that Dask does not have."""
        known = [
            path
            for path in self.paths
            if self._is_imported or path.partition(":")[0] in sys.modules
        ]
        return [path for path in known if self._look_up(*path.split(":")) is _ABSENT]

    def _look_up(self, module: str, names: str) -> Any:
        try:
            value: Any = sys.modules.get(module, _ABSENT)
            if value is _ABSENT and self._is_imported:
                value = importlib.import_module(module)
        except Exception:
            return _ABSENT
        for name in names.split("."):
            value = _member(value, name)
        return value


def _member(owner: Any, name: str) -> Any:
    """Return an attribute of an object, or `_ABSENT` if there is none.

    If only the instances of a class have the attribute, return its annotation or the method that
    sets it.
    """
    value = getattr(owner, name, _ABSENT)
    if value is _ABSENT and isinstance(owner, type):
        for base in owner.__mro__:
            annotations = vars(base).get("__annotations__", {})
            if name in annotations:
                return annotations[name]
            for method in ("__new__", "__init__"):  # These methods may set it on instances.
                function = vars(base).get(method)
                code = getattr(getattr(function, "__func__", function), "__code__", None)
                if code is not None and name in code.co_names:
                    return function
    return value


_OfSteps = partial(Names, plugins=(STEPS,))

_MACHINE, _SPEC = "distributed.worker_state_machine", "dask._task_spec"
_WORKER = "distributed.worker:Worker"
_SCHEDULER, _STATE = "distributed.scheduler:Scheduler", "distributed.scheduler:SchedulerState"
_SPILL, _SHUFFLE = "distributed.spill:SpillBuffer", "distributed.shuffle"
_GRAPH = "dask.highlevelgraph:HighLevelGraph"
_FRAMES, _ARRAYS = "dask.dataframe.dask_expr", "dask.array._array_expr"

METERING = Names(
    "no transfers, and only those task runs that the scheduler records",
    f"{_WORKER}._finalize_metrics",
    f"{_MACHINE}:ExecuteSuccessEvent ExecuteFailureEvent RescheduleEvent",
    f"{_MACHINE}:GatherDepDoneEvent GatherDepSuccessEvent GatherDepBusyEvent",
)
RUN_TASK = Names(
    "no CPU waits of tasks, and no NVTX ranges",
    "distributed.worker:_run_task_simple",
    f"{_SPEC}:GraphNode.key",
    plugins=(WORKER, ANNOTATION),
)
RUN_ACTOR = Names("no stacks of actor calls", "distributed.worker:_run_actor")
HANDLERS = Names(
    "no actor calls; files of workers whose disks the client does not see do not reach the "
    "scheduler",
    "distributed.core:Server.handlers",
    plugins=(WORKER, SCHEDULER),
)
HANDLER_FACTS = Names(
    "nothing, but handlers of ended runs stay in the memory of Dask's processes",
    "distributed.core:_expects_comm.cache_clear",
    plugins=(),
)
ACTOR_CALLS = Names("no actor calls", f"{_WORKER}.actor_execute")
WORKER_FUNCTIONS = Names(
    "the names of functions that run on workers outside of tasks are unknown",
    "distributed.worker:has_arg",
)
CODE = Names(
    "no code of functions, or only that of the outermost function of a task",
    f"{_MACHINE}:TaskState.run_spec",
    f"{_SPEC}:GraphNode",
)
ARGUMENTS = Names(
    "arguments of tasks are described by the type of their placeholders in the graph",
    f"{_SPEC}:TaskRef Alias DataNode",
)
CLOCK = Names(
    "task runs are timed by Dask's estimate of the scheduler's clock, so their order between "
    "workers is less certain",
    f"{_WORKER}.scheduler_delay",
)
P2P = Names(
    "no bytes that P2P shuffles move",
    f"{_SHUFFLE}._comms:CommShardsBuffer CommShardsBuffer.process CommShardsBuffer.send",
    f"{_SHUFFLE}._core:ShuffleRun.local_address",
    f"{_SHUFFLE}._buffer:ShardsBuffer._exception",
)
SERIALISING = Names("how long workers take to serialise results is unknown", f"{_WORKER}.get_data")

MEMORY_LIMITS = Names(
    "the workers' memory limits are unknown",
    f"{_WORKER}.memory_manager",
    plugins=(WORKER, MONITOR),
)
SPILLING = Names(
    "spilled bytes, or seconds and bytes of spilling, read 0",
    f"{_SPILL}.spilled_total",
    f"{_SPILL}.cumulative_metrics",
    plugins=(MONITOR,),
)
RESULTS_IN_MEMORY = Names(
    "no dtype and shape of arguments that are results of other tasks", f"{_SPILL}.fast"
)

UNDER_WAY = Names(
    "tasks in progress are unknown",
    f"{_WORKER}.active_threads Worker.active_threads_lock",
    f"{_MACHINE}:TaskState.start_time",
)
LAST_TICK = Names(
    "blocked event loops are not recorded",
    "distributed.core:Server._last_tick",
    plugins=(WORKER, SCHEDULER),
)
SCHEDULER_STATE = Names(
    "the work in progress on the scheduler is unknown",
    f"{_STATE}.task_prefixes SchedulerState.unrunnable SchedulerState.transition_counter",
    "distributed.scheduler:TaskPrefix.state_counts TaskPrefix.all_durations",
    plugins=(SCHEDULER,),
)

WORKER_PLUGINS = Names(
    "a run that is being recorded is not noticed if its scheduler plugin is gone",
    f"{_SCHEDULER}.worker_plugins",
    plugins=(SCHEDULER,),
)
REMOTE_ERRORS = Names(
    "errors of the cluster's processes are reported without their type and traceback",
    "distributed.core:clean_exception",
    plugins=(SCHEDULER,),
)
#: The method that creates `http_application`, to which the routes of the page are added.
HTTP_SERVER = Names(
    "no page /dasfprof on Dask's dashboard",
    "distributed.node:ServerNode.start_http_server",
    plugins=(SCHEDULER,),
)

GRAPH = _OfSteps(
    "tasks of arrays, bags and delayed functions belong to the step that computes them, not to "
    "the one that built them, and to no line",
    _GRAPH,
    f"{_GRAPH}.from_collections",
)
SUBMISSIONS = _OfSteps(
    "tasks whose layer no step built, such as futures, belong to no step and no line",
    "distributed.client:Client._graph_to_futures",
)
GRAPH_SIZE = _OfSteps(
    "the bytes of graphs are unknown", "distributed.client:Client._send_to_scheduler"
)
WAITING = _OfSteps(
    "how long a program waits in calls of its client, and its calls of wait, are unknown",
    "distributed.utils:SyncMethodMixin.sync",
)
RECEIVING = _OfSteps(
    "the time in which results are transferred to a program is part of its waiting for them",
    "distributed.client:Client._gather_remote",
    "distributed.metrics:context_meter",
)
TOKENISING = _OfSteps("how long a program tokenizes is unknown", "dask.tokenize:_tokenize")
FUNCTIONS_SENT = _OfSteps(
    "no file and source of functions that are pickled by value if cloudpickle leaves them out",
    "cloudpickle.cloudpickle:Pickler._dynamic_function_reduce",
)
#: Names of methods that rewrite an expression or a part of it.
REWRITING = ("simplify_once", "lower_once", "rewrite", "lower_completely", "optimize")
#: Name of a further such method in the package dask-array.
FUSING = "fuse"


#: By module: the `Names` of its collections, and the names of the class of collections and of the
#: class of expressions.
EXPRESSIONS: dict[str, tuple[Names, str, str]] = {}


def _of_expressions(tasks: str, module: str, collection: str, expression: str, *more: str) -> Names:
    """Return the `Names` of a class of collections and its class of expressions, and list them.

    `tasks` names such collections in the description of the loss, as in "tasks of ``dataframes``".
    `more` has the names of further attributes of expressions.
    """
    base = f"{module}._expr:{expression}"
    used = ("_name", "operands", "operand", "_parameters", *REWRITING, *more)
    names = _OfSteps(
        f"tasks of {tasks} may belong to the step that computes them, not to the one that built "
        "them, and to no line",
        f"{module}._collection:{collection}",
        base,
        *(f"{base}.{name}" for name in used),
        # A program may not use such collections.
        is_imported=False,
    )
    EXPRESSIONS[f"{module}._collection"] = names, collection, expression
    return names


FRAMES = _of_expressions("dataframes", _FRAMES, "FrameBase", "Expr")
#: Arrays if ``array.query-planning`` is set, and arrays of the package dask-array.
ARRAYS = _of_expressions("array expressions", _ARRAYS, "Array", "ArrayExpr")
DASK_ARRAYS = _of_expressions("array expressions", "dask_array", "Array", "ArrayExpr", FUSING)
#: The method that optimizes collections in the client's process. Dataframes have another method.
OPTIMISING = _OfSteps(
    "how long a program optimizes its graphs is unknown",
    "dask._expr:Expr.optimize",
    is_imported=False,
)

#: If one of these names is missing, an estimate raises an error. Traces are not affected.
ESTIMATES = Names(
    "nothing can be estimated before a run",
    f"{_SPEC}:convert_legacy_graph",
    "dask.order:order",
    "dask.base:named_schedulers",
    plugins=(),
)

LOCAL = Names(
    "nothing of what runs on Dask's local schedulers, without a cluster",
    "dask.threaded:get_async",
    "dask.multiprocessing:get_async",
    "dask.local:get_async SynchronousExecutor",
    plugins=(),
)

NAMES = tuple(value for value in tuple(vars().values()) if isinstance(value, Names))


def missing(plugin: str) -> dict[str, str]:
    """Return the names that a plugin uses but this version of Dask lacks, as a dict.

    The keys are the paths of the names, and the values describe the facts that a trace lacks
    without them.
    """
    used = [names for names in NAMES if plugin in names.plugins]
    gone = {path: names.loss for names in used for path in names.gone()}
    # Attributes of a missing class are left out.
    return {path: loss for path, loss in gone.items() if path.rpartition(".")[0] not in gone}
