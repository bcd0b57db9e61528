"""Reads what `distributed.Client.dump_cluster_state` wrote: gzipped msgpack, or YAML."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import IO, Any

from dasfprof.database.storage import is_url, reason, shown
from dasfprof.errors import DumpError, MissingExtraError, SourceNotFoundError
from dasfprof.text import format_size

#: The most bytes of a dump, unpacked, and of one in YAML, of which a second reads about one MB.
MOST_BYTES, MOST_BYTES_OF_YAML = 2 << 30, 100 << 20
_GZIP = b"\x1f\x8b"
#: The first bytes of a map in msgpack.
_MAPS = {*range(0x80, 0x90), 0xDE, 0xDF}


def read_dump(source: str) -> dict[str, Any]:
    """Return the dump in a file.

    Parameters
    ----------
    source
        A path, or a URL that `fsspec` can open.

    Raises
    ------
    SourceNotFoundError
        If there is no such file.
    MissingExtraError
        If a package is missing that the URL needs.
    DumpError
        If the file is no dump, is damaged, or is too large.
    """
    name = shown(source)
    try:
        with _open(source) as file:
            found = _read(file, name)
    except FileNotFoundError as error:
        raise SourceNotFoundError(f"there is no file {name!r}.") from error
    except ImportError as error:
        raise MissingExtraError(f"{name!r} cannot be opened: {error}.") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DumpError(f"{name!r} is damaged: {error}. Fetch it again.") from error
    except (OSError, ValueError) as error:
        raise DumpError(f"{name!r} cannot be read: {reason(error)}.") from error
    except Exception as error:
        if not is_url(source):
            raise
        # Libraries of storages raise errors of their own, for lack of credentials for example.
        raise DumpError(f"{name!r} cannot be read: {reason(error)}.") from error
    scheduler = found.get("scheduler") if isinstance(found, dict) else None
    if not (
        isinstance(found, dict)
        and isinstance(scheduler, dict)
        and isinstance(scheduler.get("tasks"), dict)
        and isinstance(found.get("workers"), dict)
    ):
        raise _not_a_dump(name)
    return found


def _not_a_dump(name: str) -> DumpError:
    return DumpError(
        f"{name!r} is no dump of a Dask cluster with its tasks, such as "
        "Client.dump_cluster_state() writes."
    )


def _open(source: str) -> IO[bytes]:
    if not is_url(source):
        return open(source, "rb")
    import fsspec

    file: IO[bytes] = fsspec.open(source, "rb").open()
    return file


def _read(file: IO[bytes], name: str) -> Any:
    content = _content(file, MOST_BYTES, name)
    if content.startswith(_GZIP):
        content = _content(gzip.GzipFile(fileobj=io.BytesIO(content)), MOST_BYTES, name)
    if not content:
        raise DumpError(f"{name!r} is empty.")
    if content[0] in _MAPS:
        return _read_msgpack(content, name)
    if len(content) > MOST_BYTES_OF_YAML:
        raise _too_large(MOST_BYTES_OF_YAML, name)
    return _read_yaml(content, name)


def _content(file: Any, most: int, name: str) -> bytes:
    content: bytes = file.read(most + 1)
    if len(content) > most:
        raise _too_large(most, name)
    return content


def _too_large(most: int, name: str) -> DumpError:
    return DumpError(
        f"{name!r} holds more than {format_size(most)}. Dump less of the cluster, in msgpack: "
        "client.dump_cluster_state(..., exclude=['log', 'events', 'stimulus_log'])."
    )


def _read_msgpack(content: bytes, name: str) -> Any:
    import msgpack

    try:
        return msgpack.unpackb(content, strict_map_key=False, unicode_errors="surrogateescape")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise DumpError(f"{name!r} is damaged: {error or type(error).__name__}.") from error


def _read_yaml(content: bytes, name: str) -> Any:
    import yaml

    if b"scheduler:" not in content:  # a text of megabytes is not parsed in vain
        raise _not_a_dump(name)
    try:
        return yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise DumpError(f"{name!r} is no YAML, or cut: {error}.") from error
