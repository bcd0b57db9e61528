"""Every private name of Dask that the recorder uses: its path, its purpose, the loss without it.

A name is private if Dask's documentation does not describe it. A module is imported when a name in
it is looked up, and looking up never raises.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any

WORKER, MONITOR, ANNOTATION = "TracePlugin", "ResourceMonitor", "GPUAnnotationPlugin"
SCHEDULER, STEPS = "SchedulerPlugin", "StepRecorder"

_ABSENT = object()


@dataclass(eq=False)
class DaskName:
    """A private name of Dask."""

    #: The module and, after a colon, the name in it, such as ``Class.attribute``.
    path: str
    #: The plugins that use it, by their names in the headers of files.
    plugins: tuple[str, ...]
    purpose: str
    #: What a trace lacks without the name.
    loss: str
    #: Whether programs may run without the module: then the look-up does not import it.
    optional_module: bool = False

    @property
    def attribute(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(":")[2].rpartition(".")[2]

    def find(self) -> Any:
        """Return the object of that name; None if it is missing or its module not imported."""
        found = self._look_up()
        return None if found is _ABSENT else found

    def exists(self) -> bool:
        """Return whether Dask has the name; True if an optional module is not imported."""
        module = self.path.partition(":")[0]
        if self.optional_module and module not in sys.modules:
            return True
        return self._look_up() is not _ABSENT

    def _look_up(self) -> Any:
        module, _, names = self.path.partition(":")
        try:
            found: Any = sys.modules.get(module)
            if found is None:
                found = _ABSENT if self.optional_module else importlib.import_module(module)
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


_STATE_MACHINE = "distributed.worker_state_machine"
_NO_METERING = (
    "no seconds of CPU, network, disk and (de)serialisation of task runs, and no transfers"
)
_NO_TRANSFERS = "no transfers between workers"
_NO_FRAMES = "dataframe tasks may belong to the step that computes them, not to the one that built"

FINALIZE_METRICS = DaskName(
    "distributed.worker:Worker._finalize_metrics",
    (WORKER,),
    "called with each outcome and its seconds, after a task run or a transfer",
    _NO_METERING,
)
EXECUTE_SUCCESS = DaskName(
    f"{_STATE_MACHINE}:ExecuteSuccessEvent", (WORKER,), "outcome of a task run", _NO_METERING
)
EXECUTE_FAILURE = DaskName(
    f"{_STATE_MACHINE}:ExecuteFailureEvent", (WORKER,), "outcome of a task run", _NO_METERING
)
RESCHEDULE = DaskName(
    f"{_STATE_MACHINE}:RescheduleEvent", (WORKER,), "outcome of a task run", _NO_METERING
)
GATHER_DONE = DaskName(
    f"{_STATE_MACHINE}:GatherDepDoneEvent", (WORKER,), "outcome of a transfer", _NO_TRANSFERS
)
GATHER_SUCCESS = DaskName(
    f"{_STATE_MACHINE}:GatherDepSuccessEvent", (WORKER,), "outcome of a transfer", _NO_TRANSFERS
)
GATHER_BUSY = DaskName(
    f"{_STATE_MACHINE}:GatherDepBusyEvent", (WORKER,), "outcome of a transfer", _NO_TRANSFERS
)
RUN_TASK = DaskName(
    "distributed.worker:_run_task_simple",
    (WORKER, ANNOTATION),
    "runs a task in its thread",
    "no waits of tasks for a core, and no NVTX ranges",
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
    "the worker's memory limit",
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

NAMES: tuple[DaskName, ...] = (
    FINALIZE_METRICS,
    EXECUTE_SUCCESS,
    EXECUTE_FAILURE,
    RESCHEDULE,
    GATHER_DONE,
    GATHER_SUCCESS,
    GATHER_BUSY,
    RUN_TASK,
    RUN_COROUTINE,
    TASK_KEY,
    SCHEDULER_DELAY,
    MEMORY_MANAGER,
    SPILLED_TOTAL,
    SPILL_METRICS,
    SPILL_FAST,
    WORKER_PLUGINS,
    CLEAN_EXCEPTION,
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
)


def missing(plugin: str) -> dict[str, str]:
    """Return the paths of the names that a plugin uses and this Dask lacks, with the losses.

    Attributes of a missing class are left out.
    """
    gone = {name.path: name.loss for name in NAMES if plugin in name.plugins and not name.exists()}
    return {path: loss for path, loss in gone.items() if path.rpartition(".")[0] not in gone}
