"""``%%dasfprof``: profiles a cell on the current Dask client and shows the result."""

from __future__ import annotations

import ast
import inspect
import logging
from argparse import BooleanOptionalAction
from types import CodeType
from typing import TYPE_CHECKING, Any

from distributed import Client, default_client
from IPython.core.displayhook import DisplayHook
from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.display import display

from dasfprof.config.kinds import Frequency, Switch, Whole
from dasfprof.config.options import RECORDING
from dasfprof.database.storage import is_url
from dasfprof.errors import DasfprofError
from dasfprof.handles.registration import register_default_profiler
from dasfprof.handles.run import ProfiledRun
from dasfprof.jupyter.view import show

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

logger = logging.getLogger(__name__)

#: The variable that holds the last view, unless another is named.
VARIABLE = "_dasfprof"

_INSTEAD = (
    "use `async with dasfprof.profile(client) as run:`, and `dasfprof.jupyter.show(run)` after it."
)


class CellMagic:
    """The magic of one shell.

    Parameters
    ----------
    shell
        The shell whose cells it runs.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def dasfprof(self, line: str, cell: str) -> None:
        """Profile a cell on the current Dask client; show its findings and its timeline.

        ::

            %%dasfprof [NAME] [-d DIRECTORY] [-o VARIABLE] [--live] [--stack-frequency 20 ...]

        NAME is the prefix of the run's file names. The files and the report go to DIRECTORY
        (default: Dask's config ``dasfprof.directory``, else the working directory). VARIABLE
        (default: ``_dasfprof``) is set to the displayed object, whose ``analyser`` answers further
        questions. With --live the run is shown while the cell runs, too. What is recorded is chosen
        by the flags that ``dasfprof run --help`` lists.

        The cell runs as it would without the magic. If it raises, recording ends, the run so far is
        shown, and the exception is raised. The magic uses the client made last, which must be
        synchronous, and the cell must not await.

        Examples::

            %%dasfprof
            %%dasfprof load -d traces -o loaded
            %%dasfprof load --stack-frequency 20 --profiler cprofile
        """
        __tracebackhide__ = True  # of an error in the cell, only the cell is of interest
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
        # By now the shell has counted on, or not, as its version has it; it has kept the input.
        number = len(shell.history_manager.input_hist_parsed) - 1
        name = shell.compile.cache(source, number, raw_code=cell)
        body = shell.transform_ast(shell.compile.ast_parse(source, filename=name)).body
        whole = ast.Module(body, [])
        awaiting = compile(whole, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if awaiting.co_flags & inspect.CO_COROUTINE:
            raise UsageError(f"%%dasfprof cannot run a cell that awaits; {_INSTEAD}")
        shown: list[ast.stmt] = []
        silent = DisplayHook.semicolon_at_end_of_expression(cell)
        if body and isinstance(body[-1], ast.Expr) and not silent:
            shown = [body.pop()]
        codes = [shell.compile(ast.Module(body, []), name, "exec")]
        return codes + [shell.compile(ast.Interactive([node]), name, "single") for node in shown]

    def _finish(self, run: ProfiledRun, variable: str) -> None:
        """Stop a run and show it; an error here is shown and does not fail the cell."""
        try:
            run.stop()
            if not is_url(run.source):
                run.collect(run.directory)  # of hosts whose disks are not this one's
            view = show(run)
        except Exception as error:
            logger.debug("the run could not be shown", exc_info=True)
            told = f"dasfprof could not show the run: {type(error).__name__}: {error}"
            display({"text/plain": told}, raw=True)
        else:
            self._shell.user_ns[variable] = view
            display(view)


def _current_client() -> Client:
    try:
        client = default_client()
    except ValueError:
        raise UsageError(
            "there is no Dask client whose cluster %%dasfprof could profile; make one in a cell "
            "before: `from distributed import Client; client = Client()`."
        ) from None
    if client.asynchronous:
        raise UsageError(f"%%dasfprof needs a synchronous client; {_INSTEAD}")
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
        elif isinstance(option, Frequency | Whole):
            kind = {"type": int if isinstance(option, Whole) else float}
        if name != "name":
            parser.add_argument(*flags, f"--{option.config_name}", **kind)
    return parser
