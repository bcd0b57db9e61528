"""``dasfprof stuck``: why the work on a cluster does not finish, live or from a dump."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasfprof.errors import NoSchedulerError
from dasfprof.report.documents import json_of, schema_of
from dasfprof.text import clean, format_date

if TYPE_CHECKING:
    from dasfprof.analysis.under_way.state import ClusterState

#: Seconds between two checks of --watch.
_INTERVAL = 2.0
_LIMIT = 2.0
#: URL schemes of Dask's addresses, first those whose addresses have a port.
_WITH_PORT = ("tcp", "tls", "ws", "wss")
_SCHEMES = (*_WITH_PORT, "ucx", "ucxx", "inproc")
_SUFFIX = ".msgpack.gz"
_NO_STACKS = (
    "Dumps contain no stacks, locks, events or queues, so it is unknown where tasks are and what "
    "they wait for."
)


@click.command()
@click.argument("source", metavar="[ADDRESS|DUMP]", required=False)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result of each check as one line of JSON."
)
@click.option("--watch", is_flag=True, help="Repeat the check every 2 s, until Ctrl-C.")
@click.option(
    "--limit",
    type=click.FloatRange(min=0.1, max=600),
    default=_LIMIT,
    show_default=True,
    help="Seconds to wait for the answer of each process.",
)
def stuck(source: str | None, *, as_json: bool, watch: bool, limit: float) -> None:
    """Explain why the work on a cluster does not finish.

    ADDRESS is the address of the scheduler, such as tcp://host:8786, or a scheduler file. The
    default is scheduler-address in Dask's configuration. The cluster does not need a profiler,
    and nothing on it is installed or changed. Certificates for tls:// come from Dask's
    configuration (distributed.comm.tls).

    DUMP is a file or URL that Client.dump_cluster_state() wrote. Dumps contain no stacks, so fewer
    causes can be found in them.

    Causes that block the most tasks come first. A cause marked "certain" is proven. A cause marked
    "likely" fits the evidence. A cause marked "possible" fits it as well, but a healthy run can
    look the same.

    \b
    Examples:
      dasfprof stuck tcp://10.0.0.7:8786
      dasfprof stuck scheduler.json --watch
      dasfprof stuck --json | jq '.causes[0].text'
      dasfprof stuck dask-cluster-dump.msgpack.gz
    """
    if source is not None and _is_dump(source):
        if watch:
            raise click.UsageError("--watch requires a live cluster, since a dump does not change.")
        from dasfprof.analysis.under_way.from_dump import read_dump, state_from_dump

        state = state_from_dump(read_dump(source))
        title = f"{clean(source)}, a dump of {format_date(state.time)} UTC"
        _print(state, title, as_json=as_json, note=_NO_STACKS)
        return
    import asyncio

    from distributed import Security

    from dasfprof.handles.inspection import look_at

    address = scheduler_address(source)
    arguments = Security().get_connection_args("client")
    try:
        while True:
            state = asyncio.run(look_at(address, arguments, limit))
            _print(state, address, as_json=as_json)
            if not watch:
                return
            time.sleep(_INTERVAL)
            if not as_json:
                click.echo()
    except NoSchedulerError as error:
        raise click.UsageError(clean(error)) from error
    except KeyboardInterrupt:
        if not watch:
            raise


def _is_dump(source: str) -> bool:
    """Return whether a source is a dump (a file or URL) and not the address of a scheduler."""
    scheme, separator, _ = source.partition("://")
    if separator:
        import fsspec

        return scheme not in _SCHEMES and scheme in fsspec.available_protocols()
    if source.endswith(_SUFFIX):
        return True
    path = Path(source)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(1) != b"{"  # A scheduler file begins with this character.


def scheduler_address(source: str | None) -> str:
    """Return a scheduler's address with its scheme, from a text, a file, or Dask's config."""
    import dask

    if source is None:
        source = dask.config.get("scheduler-address", default=None)
        if source is None:
            raise click.UsageError("Pass the scheduler's address, such as tcp://host:8786.")
    if "://" not in source and Path(source).is_file():
        try:
            source = str(json.loads(Path(source).read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise click.UsageError(
                f"{clean(source)} is not a scheduler file ({clean(error)}). `dask scheduler "
                "--scheduler-file` writes such a file."
            ) from error
    if "://" not in source:
        source = f"{dask.config.get('distributed.comm.default-scheme', default='tcp')}://{source}"
    scheme, _, place = source.partition("://")
    if scheme not in _SCHEMES:
        raise click.UsageError(
            f"{clean(source)!r} is neither a scheduler's address (tcp, tls, ws, ...) nor the URL "
            "of a dump that fsspec can open."
        )
    if scheme in _WITH_PORT and not place.rpartition(":")[2].isdigit():
        raise click.UsageError(
            f"{clean(source)!r} has no port. Pass a scheduler's address such as tcp://host:8786."
        )
    return source


def _print(state: ClusterState, title: str, *, as_json: bool, note: str | None = None) -> None:
    from dasfprof.analysis.under_way.causes import find_causes

    causes = find_causes(state)
    if as_json:
        facts = {"causes": list(map(asdict, causes)), "state": asdict(state)}
        click.echo(json_of({"schema": schema_of("stuck"), **facts}))
        return
    from dasfprof.report.terminal.findings import print_causes

    print_causes(state, causes, title, note)
