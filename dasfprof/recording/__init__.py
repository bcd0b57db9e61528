"""What observes: plugins that record on workers and on the scheduler, and what they are made of."""

from dasfprof.recording.plugins.resources import ResourceMonitor
from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
from dasfprof.recording.plugins.tasks import WorkerTaskPlugin

__all__ = ["ResourceMonitor", "SchedulerTaskPlugin", "WorkerTaskPlugin"]
