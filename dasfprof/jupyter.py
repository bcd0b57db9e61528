"""Support for notebooks: ``%load_ext dasfprof``, the magic ``%%dasfprof``, and `show`."""

from __future__ import annotations

import ast
import inspect
import logging
import os
from argparse import BooleanOptionalAction
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distributed import Client, default_client
from IPython.core.displayhook import DisplayHook
from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.display import display

from dasfprof.config.kinds import Frequency, Integer, Switch
from dasfprof.config.options import RECORDING
from dasfprof.database.storage import is_url
from dasfprof.errors import DasfprofError
from dasfprof.handles.analyser import TraceAnalyser
from dasfprof.handles.registration import register_default_profiler
from dasfprof.handles.run import ProfiledRun
from dasfprof.report.notebook import frame_html, run_html, run_text
from dasfprof.report.page.html import write_report
from dasfprof.report.run_summary import title_of
from dasfprof.text import clean, escape

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


logger = logging.getLogger(__name__)

__all__ = ["RunView", "load_ipython_extension", "show"]

#: Maximum bytes of a report that is embedded in the notebook. Reports of up to about 50,000 task
#: runs are smaller.
INLINE_BYTES = 2_000_000


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magic with a shell. ``%load_ext dasfprof`` calls this function."""
    shell.register_magic_function(CellMagic(shell).dasfprof, "cell", "dasfprof")


class RunView:
    """A view of a run in a notebook: a summary, the findings, and the report in a frame.

    The report is also written to a file. For a large run, the notebook contains only a link to this
    file.

    Parameters
    ----------
    analyser
        The analyser of the run.
    report
        The path of the report's file. An existing file is replaced.
    title
        The name of the run.

    Raises
    ------
    OSError
        If the report cannot be written.
    """

    def __init__(self, analyser: TraceAnalyser, report: Path, title: str) -> None:
        #: Analyser of the run.
        self.analyser = analyser
        #: Findings of the run.
        self.findings = analyser.diagnose()
        #: File of the report.
        self.report = write_report(analyser, report, title=title)
        self._title = title

    def __repr__(self) -> str:
        text = run_text(self.analyser, self.findings, self._title)
        return f"{text}\nThe report: {clean(self.report)}"

    def _repr_html_(self) -> str:
        frame = ""
        try:
            large = self.report.stat().st_size > INLINE_BYTES
            if not large:
                page = self.report.read_text(encoding="utf-8")
                title = f"Report of {self._title}"
                frame = frame_html(page, title, empty=not len(self.analyser.run.tasks))
            note = f"{'is too large to be shown here' if large else 'as a file'}: "
            link = os.path.relpath(self.report)  # Jupyter ignores other links.
            note += (
                f'<a href="{escape(quote(link))}" target="_blank"><code>{escape(link)}</code></a>'
            )
        except OSError as error:
            note = f"was deleted: {escape(error)}"
        summary = run_html(self.analyser, self.findings, self._title, folded=bool(frame))
        return f"{summary}<p>The report {note}</p>{frame}"


def show(run: ProfiledRun | Any) -> RunView:
    """Show a run in a notebook as ``%%dasfprof`` does.

    Parameters
    ----------
    run
        A `ProfiledRun`, or an argument of `TraceAnalyser`, such as a database, a path or a run's
        name. The report of a `ProfiledRun` is written next to its files. Other reports are written
        to the working directory.
    """
    if isinstance(run, ProfiledRun):
        directory = Path() if is_url(run.source) else run.directory
        return RunView(run.analyser(), directory / f"{run.name}.html", run.name)
    analyser = run if isinstance(run, TraceAnalyser) else TraceAnalyser(run)
    return RunView(analyser, Path("dasfprof-report.html"), title_of(analyser.run))


#: Default name of the variable to which the magic assigns the displayed view.
VARIABLE = "_dasfprof"

_INSTEAD = (
    "use `async with dasfprof.profile(client) as run:`, and then `dasfprof.jupyter.show(run)`."
)


class CellMagic:
    """The magic ``%%dasfprof`` of one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def dasfprof(self, line: str, cell: str) -> None:
        """Profile a cell on the current Dask client, and show its findings and its timeline.

        ::

            %%dasfprof [NAME] [-d DIRECTORY] [-o VARIABLE] [--live] [--stack-frequency 20 ...]

        NAME is the prefix of the run's file names. The files and the report go to DIRECTORY
        (default: Dask's config ``dasfprof.directory``, else the working directory). VARIABLE
        (default: ``_dasfprof``) is set to the displayed object, whose ``analyser`` has further
        analyses. With --live, the run is also shown while the cell runs. ``dasfprof run --help``
        lists the flags that set what is recorded.

        The cell runs as it would without the magic. If it raises, recording ends, the run so far is
        shown, and the exception is raised. The magic uses the client that was created last. This
        client must be synchronous, and the cell must not await.

        Examples::

            %%dasfprof
            %%dasfprof load -d traces -o loaded
            %%dasfprof load --stack-frequency 20 --profiler cprofile
        """
        __tracebackhide__ = True  # Tracebacks of errors in the cell must not show this frame.
        options = vars(_parser().parse_argstring(line))
        variable, is_live = options.pop("output"), options.pop("live")
        if not variable.isidentifier():
            raise UsageError(f"-o {variable!r} is not the name of a variable.")
        codes = self._compile(cell)
        try:
            run = register_default_profiler(_current_client(), **options)
        except DasfprofError as error:
            raise UsageError(str(error)) from error
        live = run.watch() if is_live else None
        try:
            if live is not None:
                display(live)
            for code in codes:
                exec(code, self._shell.user_global_ns, self._shell.user_ns)
        finally:
            self._finish(run, variable)
            if live is not None:
                live.stop()

    def _compile(self, cell: str) -> list[CodeType]:
        """Compile a cell as the shell does, so that its last expression is shown."""
        shell = self._shell
        source = shell.transform_cell(cell)
        # Count the stored inputs, because it depends on the shell's version whether the shell has
        # already increased its execution count.
        number = len(shell.history_manager.input_hist_parsed) - 1
        name = shell.compile.cache(source, number, raw_code=cell)
        body = shell.transform_ast(shell.compile.ast_parse(source, filename=name)).body
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        if compile(ast.Module(body, []), name, "exec", flags).co_flags & inspect.CO_COROUTINE:
            raise UsageError(f"%%dasfprof cannot run a cell that awaits. Instead, {_INSTEAD}")
        is_silent = DisplayHook.semicolon_at_end_of_expression(cell)
        has_value = body and isinstance(body[-1], ast.Expr) and not is_silent
        shown = [body.pop()] if has_value else []
        codes = [shell.compile(ast.Module(body, []), name, "exec")]
        return codes + [shell.compile(ast.Interactive([node]), name, "single") for node in shown]

    def _finish(self, run: ProfiledRun, variable: str) -> None:
        """Stop a run and show it. An error in this method is displayed and not raised."""
        try:
            run.stop()
            if not is_url(run.source):
                run.collect(run.directory)  # Copy the files of hosts with other disks.
            view = show(run)
        except Exception as error:
            logger.debug("the run could not be shown", exc_info=True)
            message = f"dasfprof could not show the run: {type(error).__name__}: {error}"
            display({"text/plain": message}, raw=True)
        else:
            self._shell.user_ns[variable] = view
            display(view)


def _current_client() -> Client:
    try:
        client = default_client()
    except ValueError:
        raise UsageError(
            "there is no Dask client whose cluster %%dasfprof could profile. Create one in an "
            "earlier cell: `from distributed import Client; client = Client()`."
        ) from None
    if client.asynchronous:
        raise UsageError(f"%%dasfprof needs a synchronous client. Instead, {_INSTEAD}")
    return client


def _parser() -> MagicArgumentParser:
    parser = MagicArgumentParser(prog="%%dasfprof")
    parser.add_argument("name", nargs="?")
    parser.add_argument("-o", "--output", default=VARIABLE)
    parser.add_argument("--live", action="store_true")
    for name, option in RECORDING.items():
        flags = ["-d"] if name == "directory" else []
        kind: dict[str, Any] = {}
        if isinstance(option, Switch):
            kind = {"action": BooleanOptionalAction}
        elif isinstance(option, Frequency | Integer):
            kind = {"type": int if isinstance(option, Integer) else float}
        if name != "name":
            parser.add_argument(*flags, f"--{option.config_name}", **kind)
    return parser
