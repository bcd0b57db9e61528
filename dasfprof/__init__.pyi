from dasfprof import errors as errors
from dasfprof.analysis import Trace as Trace
from dasfprof.analysis.history import history as history
from dasfprof.database import EventProfiler as EventProfiler
from dasfprof.database import FileDatabase as FileDatabase
from dasfprof.database import MultiEventDatabase as MultiEventDatabase
from dasfprof.database import open_run as open_run
from dasfprof.errors import DasfprofError as DasfprofError
from dasfprof.errors import DoesNotFit as DoesNotFit
from dasfprof.handles.analyser import TraceAnalyser as TraceAnalyser
from dasfprof.handles.comparison import compare as compare
from dasfprof.handles.estimation.estimate import Estimate as Estimate
from dasfprof.handles.estimation.estimate import estimate as estimate
from dasfprof.handles.inspection import stuck as stuck
from dasfprof.handles.registration import profile as profile
from dasfprof.handles.registration import register_default_profiler as register_default_profiler
from dasfprof.handles.run import ProfiledRun as ProfiledRun
from dasfprof.handles.trial.trial import try_ as try_
from dasfprof.recording.steps.step import step as step
from dasfprof.report.formats import export as export
from dasfprof.report.page.html import write_report as write_report
from dasfprof.schema.events import CompleteEvent as CompleteEvent
from dasfprof.schema.events import DurationBeginEvent as DurationBeginEvent
from dasfprof.schema.events import DurationEndEvent as DurationEndEvent
from dasfprof.schema.events import InstantEvent as InstantEvent

__version__: str
