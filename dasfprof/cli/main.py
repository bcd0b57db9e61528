"""``dasfprof``: the command group. It turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import click

from dasfprof import __version__
from dasfprof.cli import ScriptInterrupted
from dasfprof.errors import DasfprofError

#: Module of each command, and first sentence of the command's help.
_COMMANDS = {
    "demo": ("dasfprof.cli.demo", "Record a small pipeline, and show where its time went."),
    "estimate": (
        "dasfprof.cli.estimate",
        "Estimate the tasks and memory of a script's first computation, without computing "
        "anything.",
    ),
    "run": (
        "dasfprof.cli.run",
        "Run a Python script and record every Dask cluster that it uses.",
    ),
    "watch": ("dasfprof.cli.watch", "Show a run in progress, from its files."),
    "analyse": ("dasfprof.cli.analyse", "Print the findings of a run and where its time went."),
    "try": (
        "dasfprof.cli.try_",
        "Run a script with and without a change, and report the time that the change saves.",
    ),
    "tune": (
        "dasfprof.cli.tune",
        "Find the workers, threads and memory limit with which a script runs fastest.",
    ),
    "compare": ("dasfprof.cli.compare", "Compare two groups of runs, and test the difference."),
    "history": (
        "dasfprof.cli.history",
        "List the runs in a directory, and show whether they get slower.",
    ),
    "info": ("dasfprof.cli.info", "Show what trace files contain and which events were lost."),
    "report": ("dasfprof.cli.export", "Write a run as one HTML file that works offline."),
    "export": ("dasfprof.cli.export", "Write a run in the formats of other tools."),
    "collect": (
        "dasfprof.cli.collect",
        "Copy the files of all runs that are being recorded on a cluster.",
    ),
    "stuck": ("dasfprof.cli.stuck", "Explain why the work on a cluster does not finish."),
}


class CommandModules(Mapping[str, click.Command]):
    """The commands by name. A command is imported only when it is looked up, not when listed."""

    def __getitem__(self, name: str) -> click.Command:
        module, _ = _COMMANDS[name]
        command: click.Command = getattr(import_module(module), {"try": "try_"}.get(name, name))
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class ErrorsAsMessages(click.Group):
    """A command group that prints an error of a command as one line on standard error."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command. The American spelling of its name is also accepted."""
        return super().get_command(ctx, "analyse" if cmd_name == "analyze" else cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DasfprofError as error:
            raise _message_of(error) from error
        except OSError as error:
            # Click ends the command without a message, as in `dasfprof ... | head`.
            if error.errno == errno.EPIPE:
                raise
            raise _message_of(error) from error


def _message_of(error: Exception) -> click.ClickException:
    from dasfprof.text import clean

    return click.ClickException(clean(error))


@click.group(
    "dasfprof",  # The name of the group as a command of `dask`.
    cls=ErrorsAsMessages,
    commands=CommandModules(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 success, 1 failure (explained by the message), 2 wrong usage, 3 slower "
    "than allowed (compare), 4 undecided (compare). `dasfprof run` exits with the code of "
    "the script.",
)
@click.version_option(__version__, prog_name="dasfprof")
def cli() -> None:
    """Find out where a Dask pipeline's time went, why, and what to change."""


def main() -> None:
    """Run the command line."""
    try:
        cli(prog_name="dasfprof")
    except ScriptInterrupted:
        # The script has already printed its traceback. After a KeyboardInterrupt, the interpreter
        # ends this process with SIGINT, as it would have ended the script, so shells leave loops.
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt from None
