"""The methods of the registered questions; written by ``python tests/methods_stub.py``."""
# ruff: noqa: E501

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from dasfprof.analysis.trace import Trace

class Questions:
    """The questions, a method each."""

    _progress: bool

    @property
    def trace(self) -> Trace:
        """The run as tables."""

    def diagnose(
        self,
        least: float = 0.1,
    ) -> pd.DataFrame:
        """Look for the known faults of a run, and say what to change."""

    def per_function_bottleneck(self) -> pd.DataFrame:
        """Sum up the task runs of each function on each worker."""

    def client_calls(self) -> pd.DataFrame:
        """Sum up the calls of Dask by the client's program, by line."""

    def client_time(self) -> pd.DataFrame:
        """Put every second of the client's main thread into exactly one class."""

    def critical_path(self) -> pd.DataFrame:
        """Return the chain of waits and work that made the run as long as it was."""

    def critical_path_summary(
        self,
        by: Literal["function", "step"] = "function",
    ) -> pd.DataFrame:
        """Sum up the critical path by kind and function, or step."""

    def time_to_first_task(self) -> pd.DataFrame:
        """Split the time from the begin of recording to the first task."""

    def per_worker_task_balance(self) -> pd.DataFrame:
        """Count the tasks in memory on each worker over time."""

    def time_accounting(
        self,
        by: Literal["cluster", "host", "worker", "function", "step", "line"] = "cluster",
    ) -> pd.DataFrame:
        """Put every second of every thread of every worker's life into exactly one class."""

    def cost(
        self,
        by: Literal["step", "line", "function", "client", "worker", "finding"] = "step",
        price: float | str | None = None,
    ) -> pd.DataFrame:
        """Say what a run cost: the hours of its workers, by what they were spent on, and their price."""

    def per_gpu_utilisation(
        self,
        interval: float | None = None,
    ) -> pd.DataFrame:
        """Show how busy each GPU was, and whether it idled while tasks ran on its workers."""

    def per_task_bottleneck(self) -> pd.DataFrame:
        """List the task runs, the longest first."""

    def per_task_status(self) -> pd.DataFrame:
        """Show what each task run waited for and did, from its arrival to its known outcome."""

    def per_function_status(self) -> pd.DataFrame:
        """Sum up what the task runs of each function waited for and did, and what to do about it."""

    def why(
        self,
        key: str,
        run_id: int | None = None,
    ) -> pd.DataFrame:
        """List what one task waited for, and the workers' queues when it was assigned to one."""

    def cprofile(
        self,
        function: str | None = None,
    ) -> pd.DataFrame:
        """Sum up what cProfile counted, over all workers."""

    def call_profiles(self) -> pd.DataFrame:
        """List the files of the profiler of calls, for ``python -m pstats FILE`` and other viewers."""

    def hot_lines(
        self,
        function: str | None = None,
        step: str | None = None,
        by: Literal["line", "function", "library"] = "line",
    ) -> pd.DataFrame:
        """Sum up the samples of stacks of tasks by line, function or library."""

    def call_tree(
        self,
        function: str | None = None,
        step: str | None = None,
        least: float = 1.0,
    ) -> pd.DataFrame:
        """Sum up the samples of stacks of tasks by call, from the tasks' functions inwards."""

    def client_activity(self) -> pd.DataFrame:
        """Sum up the samples of the client's main thread by phase and line."""

    def loop_blocks(self) -> pd.DataFrame:
        """List the times in which an event loop had not turned for over 50 ms."""

    def lines(
        self,
        price: float | str | None = None,
    ) -> pd.DataFrame:
        """Sum up what each line of the program built, and what it took of the cluster and the client."""

    def plan(self) -> pd.DataFrame:
        """Sum up what each node of the plan took: a layer of the graphs, as Dask had optimised them."""

    def plan_edges(self) -> pd.DataFrame:
        """List which nodes of the plan took results of which."""

    def function_code(
        self,
        function: str | None = None,
    ) -> pd.DataFrame:
        """List the Python functions that tasks call, with their source."""

    def per_step_bottleneck(self) -> pd.DataFrame:
        """Sum up the task runs of each step of the pipeline."""

    def per_step_status(self) -> pd.DataFrame:
        """Sum up what the task runs of each step of the pipeline waited for and did."""

    def sent_values(self) -> pd.DataFrame:
        """Sum up the functions by value and the arguments of 10 kB or more in graphs, by line."""

    def actor_calls(
        self,
        by: Literal["method", "actor"] = "method",
    ) -> pd.DataFrame:
        """Sum up the calls of methods of actors, which are no tasks and hold no thread of tasks."""

    def imbalance(
        self,
        by: Literal["function", "step"] = "function",
    ) -> pd.DataFrame:
        """Measure how unequally each function's work is spread over workers, and over its tasks."""

    def stragglers(self) -> pd.DataFrame:
        """List the task runs that took far longer than others of their function, and why."""

    def workers(self) -> pd.DataFrame:
        """List the lives of workers: on which host and in which job, when they came and went, and why."""

    def function_memory(self) -> pd.DataFrame:
        """Say how much memory workers' processes held while functions ran, by the samples there are."""

    def gpu_memory(self) -> pd.DataFrame:
        """Say what each worker had in its GPU's memory when that was fullest."""

    def died_of_memory(self) -> pd.DataFrame:
        """Say of each worker that died of want of memory which function took it, and how sure that is."""

    def memory_peak(
        self,
        by: Literal["cluster", "worker"] = "cluster",
    ) -> pd.DataFrame:
        """Say what held memory when workers' processes held most, and why it was not let go."""

    def memory_at(
        self,
        time: float,
        by: Literal["cluster", "worker"] = "cluster",
    ) -> pd.DataFrame:
        """Say what held memory at a moment, and why it was not let go."""

    def memory_growth(
        self,
        by: Literal["cluster", "worker", "function"] = "cluster",
    ) -> pd.DataFrame:
        """Say which memory grows from one computation to the next, and how sure that is."""

    def cluster_sizing(
        self,
        deadline: float | str | None = None,
        *,
        threads_per_worker: int | None = None,
        memory_limit: float | None = None,
        price: float | str | pd.DataFrame | Sequence[Mapping[str, Any]] | None = None,
        start_up: float | str = 0.0,
    ) -> pd.DataFrame:
        """Find the cheapest cluster that meets a deadline."""

    def chunk_sizing(
        self,
        overhead: float = 0.005,
    ) -> pd.DataFrame:
        """Find how large chunks should be, so that overhead takes a small share of the time."""

    def storage(self) -> pd.DataFrame:
        """Sum up what task runs read from storage and wrote to it, by function."""

    def transfers(
        self,
        by: Literal["worker", "host", "function", "step", "time", "shuffle"] = "worker",
        *,
        interval: float | None = None,
    ) -> pd.DataFrame:
        """Sum up what was moved between workers."""

    def degradation(self) -> pd.DataFrame:
        """Test whether each function gets slower as the run goes on, by the steps of the guide."""

    def processed_tasks(
        self,
        by: Literal["task", "function", "step"] = "task",
    ) -> pd.DataFrame:
        """List what became of each attempt at a task, or sum it up by function."""

    def process_summary(self) -> pd.DataFrame:
        """Sum up `processed_tasks` by worker."""

    def node_summary(self) -> pd.DataFrame:
        """Sum up `processed_tasks` by node."""

    def task_counts(
        self,
        interval: float | None = None,
    ) -> pd.DataFrame:
        """Count the attempts at tasks by interval, host, worker and status."""

    def node_resource_usage(self) -> pd.DataFrame:
        """List what was sampled of each host."""

    def processes_resource_usage(self) -> pd.DataFrame:
        """List what was sampled of each worker's process."""

    def node_disk_usage(self) -> pd.DataFrame:
        """List what was read of each disk of each host."""

    def host_processes(self) -> pd.DataFrame:
        """List the programs that used much of a host, the run's own and others'."""

    def scaling(
        self,
        workers: Sequence[int] | None = None,
    ) -> pd.DataFrame:
        """Predict wall time, efficiency and cost on fewer and on more workers."""

    def what_if(
        self,
        *,
        workers: int | None = None,
        threads: int | None = None,
        bandwidth: float | None = None,
        spill: bool = True,
        speedup: Mapping[str, float] | None = None,
    ) -> pd.DataFrame:
        """Predict the wall time of the run after a change; several changes count together."""

    def memory_forecast(
        self,
        workers: Sequence[int] | None = None,
        *,
        threads: int | None = None,
        memory_limit: float | None = None,
    ) -> pd.DataFrame:
        """Predict what the fullest worker would hold at most on other numbers of workers."""

    def logs(
        self,
        function: str | None = None,
    ) -> pd.DataFrame:
        """List what task runs logged by `logging`, from the level on that the run was recorded with."""

    def tracebacks(
        self,
        function: str | None = None,
    ) -> pd.DataFrame:
        """List the failed attempts at tasks, each with its whole traceback."""

    def cluster_changes(self) -> pd.DataFrame:
        """List who restarted, retired, paused or gave up workers, cancelled tasks, or adapted."""

    def own_events(self) -> pd.DataFrame:
        """List the events that user code recorded, of kinds of its own."""

    def task_arguments(
        self,
        function: str | None = None,
    ) -> pd.DataFrame:
        """List what task runs were called with, by type, dtype, shape and length."""
