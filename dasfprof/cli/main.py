"""``dasfprof``: the group of the commands, and where errors become messages and exit codes."""

from __future__ import annotations

import errno
import sys
from typing import Any

import click

from dasfprof import __version__
from dasfprof.cli.analyse import analyse
from dasfprof.cli.compare import compare
from dasfprof.cli.demo import demo
from dasfprof.cli.estimate import estimate
from dasfprof.cli.export import export, report
from dasfprof.cli.history import history
from dasfprof.cli.info import info
from dasfprof.cli.run import ScriptInterrupted, run
from dasfprof.cli.stuck import stuck
from dasfprof.cli.try_ import try_
from dasfprof.cli.tune import tune
from dasfprof.cli.watch import watch
from dasfprof.errors import DasfprofError
from dasfprof.text import clean


class ErrorsAsMessages(click.Group):
    """A group whose commands' own errors end the program with one line on standard error."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, also by its American spelling."""
        return super().get_command(ctx, "analyse" if cmd_name == "analyze" else cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DasfprofError as error:
            raise click.ClickException(clean(error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # `dasfprof ... | head`: click ends it quietly
                raise
            raise click.ClickException(clean(error)) from error


@click.group(
    "dasfprof",  # its name as a command of `dask`
    cls=ErrorsAsMessages,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 success, 1 failure, explained by the message, 2 wrong usage, 3 slower "
    "than allowed (compare). `dasfprof run` exits with the code of the script.",
)
@click.version_option(__version__, prog_name="dasfprof")
def cli() -> None:
    """Find out where a Dask pipeline's time went, why, and what to change."""


_COMMANDS = (
    demo,
    estimate,
    run,
    watch,
    analyse,
    try_,
    tune,
    compare,
    history,
    info,
    report,
    export,
    stuck,
)
for command in _COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Run the command line."""
    try:
        cli(prog_name="dasfprof")
    except ScriptInterrupted:
        # The script has shown its traceback. The interpreter, told of a KeyboardInterrupt, ends
        # the process by SIGINT, as it would have ended the script: shells break their loops.
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt from None
