"""Who observes: plugins for workers and the scheduler, and their registration on a cluster."""

from dasfprof.recording.registration import profile, register_default_profiler
from dasfprof.recording.resource import ResourceMonitor
from dasfprof.recording.run import ProfiledRun
from dasfprof.recording.scheduler import SchedulerTaskPlugin
from dasfprof.recording.steps import step
from dasfprof.recording.worker import WorkerTaskPlugin

__all__ = [
    "ProfiledRun",
    "ResourceMonitor",
    "SchedulerTaskPlugin",
    "WorkerTaskPlugin",
    "profile",
    "register_default_profiler",
    "step",
]
