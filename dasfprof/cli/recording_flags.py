"""The options of a recording as flags of a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dasfprof.config.kinds import Choice, Frequency, Option, Seconds, Switch
from dasfprof.config.options import FLAGS
from dasfprof.errors import InvalidArgumentError

Command = TypeVar("Command", bound=Callable[..., Any])


class DirectoryOrURL(click.Path):
    """A directory, or a URL as text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a path, or the URL."""
        from dasfprof.database.storage import is_url

        return value if is_url(value) else super().convert(value, param, ctx)


class Checked(click.ParamType):  # type: ignore[type-arg]
    """A value that an option of a recording takes; times are numbers of seconds.

    Dask would read times with units, and is not to be imported before the script changes what it
    reads when it is imported.
    """

    def __init__(self, option: Option) -> None:
        self._option = option
        self._is_number = isinstance(option, Seconds | Frequency)
        self.name = "number" if self._is_number else "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, or the number."""
        try:
            return self._option.check(float(value) if self._is_number else value)
        except InvalidArgumentError as error:
            self.fail(str(error), param, ctx)
        except ValueError:
            self.fail(f"{value!r} is no number.", param, ctx)


def recording_flags(**defaults: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the flags of a recording, None where not given.

    Parameters
    ----------
    **defaults
        Words for the defaults of options that have another than that of Dask's config.
    """

    def decorate(command: Command) -> Command:
        for option in reversed(FLAGS.values()):
            command = _flag(option, defaults.get(option.name, option.default))(command)
        return command

    return decorate


def _flag(option: Option, default: Any) -> Callable[[Command], Command]:
    flag = f"--{option.config_name}"
    if isinstance(option, Switch):
        return click.option(f"{flag}/--no-{flag[2:]}", default=None, help=option.summary)
    kind: Any = Checked(option)
    if isinstance(option, Choice):
        kind = click.Choice(option.choices, case_sensitive=False)
    elif option.name == "directory":
        kind = DirectoryOrURL(file_okay=False, writable=True, path_type=Path)
    return click.option(flag, type=kind, help=option.summary, show_default=str(default))
