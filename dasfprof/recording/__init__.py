"""Plugins that record on workers and on the scheduler, and their registration on a cluster."""

from dasfprof.recording.plugins.resources import ResourceMonitor
from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
from dasfprof.recording.registration import profile, register_default_profiler
from dasfprof.recording.run import ProfiledRun
from dasfprof.recording.steps.step import step

__all__ = [
    "ProfiledRun",
    "ResourceMonitor",
    "SchedulerTaskPlugin",
    "WorkerTaskPlugin",
    "profile",
    "register_default_profiler",
    "step",
]
