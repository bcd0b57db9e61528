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
        """Find known problems of a run, and suggest what to change."""

    def per_function_bottleneck(self) -> pd.DataFrame:
        """Sum up the task runs of each function on each worker."""

    def client_calls(self) -> pd.DataFrame:
        """Sum up the client's calls into Dask by line of your program."""

    def critical_path(self) -> pd.DataFrame:
        """Return the critical path: the chain of waits and work that determined the wall time."""

    def critical_path_summary(
        self,
        by: Literal["function", "step"] = "function",
    ) -> pd.DataFrame:
        """Sum up the critical path by kind and function, or by kind and step."""

    def time_to_first_task(self) -> pd.DataFrame:
        """Split the time from the start of recording to the first task into stages."""

    def per_worker_task_balance(self) -> pd.DataFrame:
        """Count the tasks in memory on each worker over time."""

    def per_gpu_utilisation(
        self,
        interval: float | None = None,
    ) -> pd.DataFrame:
        """Show how busy each GPU was, and whether it idled while tasks ran on its workers."""

    def per_task_bottleneck(self) -> pd.DataFrame:
        """List the task runs, sorted by duration in descending order."""

    def per_task_status(self) -> pd.DataFrame:
        """Show what each task run waited for and did, from its arrival to its known outcome."""

    def per_function_status(self) -> pd.DataFrame:
        """Sum up what the task runs of each function waited for and did, and suggest what to do."""

    def time_accounting(
        self,
        by: Literal["cluster", "host", "worker", "function", "step", "line"] = "cluster",
    ) -> pd.DataFrame:
        """Divide the thread time of all workers into categories."""

    def cost(
        self,
        by: Literal["step", "line", "function", "client", "finding"] = "step",
        price: float | str | None = None,
    ) -> pd.DataFrame:
        """List the worker hours of a run and their price, by what they were spent on."""

    def why(
        self,
        key: str,
    ) -> pd.DataFrame:
        """List what one task waited for, and the queues of workers when it was assigned."""

    def cprofile(
        self,
        function: str | None = None,
    ) -> pd.DataFrame:
        """Sum up what cProfile counted on all workers."""

    def call_profiles(self) -> pd.DataFrame:
        """List the files of the call profiler, for ``python -m pstats FILE`` and other viewers."""

    def hot_lines(
        self,
        function: str | None = None,
        step: str | None = None,
        by: Literal["line", "function", "library"] = "line",
    ) -> pd.DataFrame:
        """Sum up the stack samples of tasks by line, function or library."""

    def call_tree(
        self,
        function: str | None = None,
        step: str | None = None,
        least: float = 1.0,
    ) -> pd.DataFrame:
        """Sum up the stack samples of tasks by call, starting with the functions of the tasks."""

    def client_activity(self) -> pd.DataFrame:
        """Sum up the samples of the client's main thread by phase and line."""

    def loop_blocks(self) -> pd.DataFrame:
        """List the times in which an event loop was blocked for more than 50 ms."""

    def lines(
        self,
        price: float | str | None = None,
    ) -> pd.DataFrame:
        """Sum up what each line of your program built, and what it took of the cluster and the client."""

    def plan(self) -> pd.DataFrame:
        """Sum up the layers of the submitted graphs, as Dask optimised them."""

    def plan_edges(self) -> pd.DataFrame:
        """List the dependencies between nodes of the plan."""

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
        """Sum up the functions and large arguments in graphs, by the line that sent them."""

    def imbalance(
        self,
        by: Literal["function", "step"] = "function",
    ) -> pd.DataFrame:
        """Measure how unequally the work of each function is spread over workers and over tasks."""

    def stragglers(self) -> pd.DataFrame:
        """List the task runs that took much longer than others of their function, and why."""

    def function_memory(self) -> pd.DataFrame:
        """Sum up the sampled memory of worker processes while each function ran."""

    def gpu_memory(self) -> pd.DataFrame:
        """Show the memory use of each worker's GPU at its peak."""

    def died_of_memory(self) -> pd.DataFrame:
        """List the workers that ran out of memory, with the function that probably used it."""

    def memory_peak(
        self,
        by: Literal["cluster", "worker"] = "cluster",
    ) -> pd.DataFrame:
        """List what held memory at the peak of the worker processes, and for what purpose."""

    def memory_at(
        self,
        time: float,
        by: Literal["cluster", "worker"] = "cluster",
    ) -> pd.DataFrame:
        """List what held memory at one moment, and for what purpose."""

    def memory_growth(
        self,
        by: Literal["cluster", "worker"] = "cluster",
    ) -> pd.DataFrame:
        """Test which memory grows from one computation to the next."""

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
        """Find how large chunks should be, so that overhead is a small fraction of the time."""

    def workers(self) -> pd.DataFrame:
        """List the worker instances with their host and job, when they joined and left, and why."""

    def storage(self) -> pd.DataFrame:
        """Sum up what task runs read from storage and wrote to it, by function."""

    def transfers(
        self,
        by: Literal["worker", "function"] = "worker",
    ) -> pd.DataFrame:
        """Sum up the transfers between workers."""

    def degradation(self) -> pd.DataFrame:
        """Test whether each function gets slower during the run, by the criteria of ParallelRunStep."""

    def processed_tasks(
        self,
        by: Literal["task", "function", "step"] = "task",
    ) -> pd.DataFrame:
        """List the outcome of each attempt at a task, or sum up attempts by function or step."""

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
        """List the resource samples of each host."""

    def processes_resource_usage(self) -> pd.DataFrame:
        """List the resource samples of each worker process."""

    def node_disk_usage(self) -> pd.DataFrame:
        """List the samples of each disk of each host."""

    def host_processes(self) -> pd.DataFrame:
        """List the programs that used much of a host, including those of other users."""

    def scaling(
        self,
        workers: Sequence[int] | None = None,
    ) -> pd.DataFrame:
        """Predict wall time, efficiency and cost with fewer and with more workers."""

    def what_if(
        self,
        *,
        workers: int | None = None,
        threads: int | None = None,
        bandwidth: float | None = None,
        spill: bool = True,
        speedup: Mapping[str, float] | None = None,
    ) -> pd.DataFrame:
        """Predict the wall time after one change, or after several changes together."""

    def memory_forecast(
        self,
        workers: Sequence[int] | None = None,
        *,
        threads: int | None = None,
        memory_limit: float | None = None,
    ) -> pd.DataFrame:
        """Predict the peak memory of the fullest worker on other numbers of workers."""

    def logs(
        self,
        function: str | None = None,
    ) -> pd.DataFrame:
        """List the log records of task runs, from the level that was set for the recording."""

    def tracebacks(
        self,
        function: str | None = None,
    ) -> pd.DataFrame:
        """List the failed attempts at tasks with their tracebacks."""

    def cluster_changes(self) -> pd.DataFrame:
        """List restarts, retirements, pauses and cancellations, and who requested them."""

    def own_events(self) -> pd.DataFrame:
        """List the events that user code recorded."""

    def task_arguments(
        self,
        function: str | None = None,
    ) -> pd.DataFrame:
        """List the arguments of task runs by type, dtype, shape and length."""
