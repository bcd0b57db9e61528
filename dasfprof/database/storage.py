"""`Storage`: a directory at a URL, such as ``s3://bucket/traces``, which is accessed with fsspec.

fsspec is installed with Dask, but the libraries for most protocols are not. These libraries look
for credentials in the environment of each process, in files of its user, and on its host.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from dasfprof.database import runs
from dasfprof.database.output import create_exclusively
from dasfprof.database.runs import TraceFiles, choose_run
from dasfprof.errors import (
    DasfprofError,
    InvalidArgumentError,
    MissingExtraError,
    SourceNotFoundError,
    TraceError,
)

_PASSWORD = re.compile(r"(?<=://)[^/@]*:[^/@]*@")
#: Pattern of a `pathlib.Path` that was made from a URL and lost a slash by this.
_LOST_SLASH = re.compile(r"^(s3a?|gs|gcs|az|abfss?|memory|https?|sftp|hdfs|file):/(?!/)")


def is_url(source: object) -> bool:
    """Return whether a source or directory is a URL rather than a path.

    Raises
    ------
    InvalidArgumentError
        If `source` is a `Path` that was made from a URL.
    """
    if not isinstance(source, str | os.PathLike):
        return False
    text = str(source)
    if not isinstance(source, str) and _LOST_SLASH.match(text):
        raise InvalidArgumentError(
            f"{text!r} is a URL that was converted to a path and lost a slash. Pass the URL as a "
            "str."
        )
    return "://" in text


def shown(url: str) -> str:
    """Return a URL with the user and password, if any, replaced by asterisks."""
    return _PASSWORD.sub("***@", url)


class Storage:
    """A directory at a URL.

    All paths are relative to this directory. Errors of fsspec and of the protocol's library are
    raised unchanged, and `reason` describes them. Several threads may use an instance if its
    attribute `parallel` is true.

    Parameters
    ----------
    url
        A URL that fsspec accepts.

    Raises
    ------
    MissingExtraError
        If the package for this protocol is not installed.
    InvalidArgumentError
        If fsspec does not know the protocol.
    """

    def __init__(self, url: str) -> None:
        self.url = shown(url).rstrip("/")
        check_backend(url)
        try:
            from fsspec.core import url_to_fs

            # Use no cache, because other processes write to the storage as well.
            self._files, root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as error:
            raise _missing_package(url, error) from error
        self._root = str(root).rstrip("/")
        #: Whether several threads may use this instance at the same time.
        self.parallel = bool(self._files.async_impl)

    def put(self, path: str, data: bytes) -> None:
        """Write a complete file. A file that exists at this path is replaced."""
        full_path = f"{self._root}/{path}"
        try:
            self._files.pipe_file(full_path, data)
        except FileNotFoundError:
            # Create the directories, which object storages do not have. `create_parents=False`
            # prevents that a bucket is created, for example because of a typo.
            parts = path.split("/")[:-1]
            for end in range(len(parts) + 1):
                try:
                    directory = "/".join([self._root, *parts[:end]])
                    self._files.mkdir(directory, create_parents=False)
                except FileExistsError:
                    continue
            self._files.pipe_file(full_path, data)

    def get(self, path: str) -> bytes:
        """Return the content of a file."""
        return self._files.cat_file(f"{self._root}/{path}")

    def directories(self) -> list[str]:
        """Return the names of the subdirectories."""
        entries = self._files.ls(self._root, detail=True)
        paths = [str(entry["name"]) for entry in entries if entry["type"] == "directory"]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the sizes of all files below a directory, by their paths relative to it."""
        try:
            files = self._files.find(f"{self._root}/{directory}", detail=True)
        except FileNotFoundError:
            return {}
        sizes = {
            str(path).partition(f"{directory}/")[2]: int(facts["size"] or 0)
            for path, facts in files.items()
        }
        return {path: size for path, size in sizes.items() if path}


def check_backend(url: str) -> None:
    """Check that the package for a URL's protocol is installed.

    Raises
    ------
    MissingExtraError
        If the package is not installed. The message names the package.
    InvalidArgumentError
        If fsspec does not know the protocol.
    """
    try:
        from fsspec.core import split_protocol
        from fsspec.registry import known_implementations, registry
    except ImportError as error:
        raise _missing_package(url, error) from error
    for link in url.split("::"):
        protocol = split_protocol(link)[0] or link
        if protocol in registry:
            continue
        known = known_implementations.get(protocol)
        if known is None:
            raise InvalidArgumentError(
                f"{shown(url)!r}: fsspec does not know the protocol {protocol!r}. It knows s3, "
                "gs, abfs, file, sftp and others."
            )
        # Importing the package would block for a while.
        if find_spec(known["class"].partition(".")[0]) is None:
            raise _missing_package(url, known.get("err", known["class"]))


def _missing_package(url: str, what: object) -> MissingExtraError:
    """Return the error for a URL that needs a missing package. `what` describes the package."""
    extra = ": `pip install 'dasfprof[s3]'`" if url.startswith("s3") else ""
    return MissingExtraError(f"{shown(url)} requires another package: {what}{extra}.")


def reason(error: BaseException) -> str:
    """Return a description of an error that was raised when a storage was accessed."""
    name = type(error).__name__
    text = f"{name}: {shown(str(error))}" if str(error) else name
    if "Credential" in name:
        return f"this process has no credentials for it ({text})"
    if isinstance(error, FileNotFoundError):
        return f"there is no such bucket or directory ({text})"
    if isinstance(error, PermissionError):
        return f"access is denied ({text})"
    return text


def why_not_writable(url: str, path: str) -> str | None:
    """Write an empty file to a storage. Return why this is impossible, or None if it succeeded."""
    try:
        Storage(url).put(path, b"")
    except Exception as error:  # Any error of the storage's library.
        return reason(error)
    return None


#: Maximum number of pieces that are fetched at the same time.
_AT_ONCE = 8

#: Runs that this process has found in storages, by URL and directory.
_runs: dict[tuple[str, str], StoredRun] = {}


class StoredRun(TraceFiles):
    """A run in a directory of a storage."""

    def __init__(self, storage: Storage, directory: str) -> None:
        super().__init__(*(runs.parse_run(directory) or (directory,)))
        self.directory = directory
        self._storage = storage
        #: Copies of the trace files that were found in the storage, by name of their directory.
        self._copies: dict[str, Path] = {}
        #: Size in bytes of each piece and each call profile that was copied, by its path.
        self._sizes: dict[str, int] = {}
        self._local: Path | None = None
        self._lock = threading.Lock()

    def fetch(self) -> list[Path]:
        """Copy new data from the storage, and return the local paths of all trace files.

        Bytes of missing pieces are zero. Readers report them as damage and skip them.

        Raises
        ------
        TraceError
            If the storage cannot be read.
        OSError
            If the copies cannot be written.
        """
        with self._lock:
            try:
                sizes = self._storage.sizes(self.directory)
            except Exception as error:  # Any error of the storage's library.
                raise TraceError(f"{self._storage.url} cannot be read: {reason(error)}") from error
            outdated: list[tuple[str, Path, int | None]] = []
            for path, size in sorted(sizes.items()):
                directory, _, name = path.rpartition("/")
                stem, position = runs.stem_of(directory), runs.position_of(name)
                is_part = position is not None or name.endswith(".pstats")
                if stem is not None and is_part and self._sizes.get(path) != size:
                    outdated.append((path, self._copy(directory, stem), position))
            with ThreadPoolExecutor(_AT_ONCE if self._storage.parallel else 1) as threads:
                for start in range(0, len(outdated), _AT_ONCE):
                    batch = outdated[start : start + _AT_ONCE]
                    contents = threads.map(self._get, [path for path, _, _ in batch])
                    for (path, file, position), data in zip(batch, contents, strict=True):
                        if data is not None:
                            self._sizes[path] = len(data)
                            _write(file, path, position, data)
            self.files = [file for file in self._copies.values() if file.stat().st_size]
            return self.files

    def _get(self, path: str) -> bytes | None:
        """Return the content of a file in the storage, or None if the file no longer exists."""
        try:
            return self._storage.get(f"{self.directory}/{path}")
        except FileNotFoundError:
            return None
        except Exception as error:
            url = f"{self._storage.url}/{self.directory}/{path}"
            raise TraceError(f"{url} cannot be read: {reason(error)}") from error

    def _copy(self, directory: str, stem: str) -> Path:
        if directory not in self._copies:
            if self._local is None:
                self._local = Path(tempfile.mkdtemp(dir=_directory_of_copies()))
            self._copies[directory] = create_exclusively(self._local / f"{stem}.msgpack")
        return self._copies[directory]


def _write(file: Path, path: str, position: int | None, data: bytes) -> None:
    """Write a piece into the copy of its trace file, or a call profile next to the copy."""
    if position is None:
        (file.parent / path.rpartition("/")[2]).write_bytes(data)
    else:
        with file.open("r+b") as copy:
            copy.seek(position)
            copy.write(data)


def find_stored_runs(url: str) -> list[StoredRun]:
    """Return the runs in a storage, newest first, without copying their files.

    Raises
    ------
    SourceNotFoundError
        If the directory at the URL does not exist.
    TraceError
        If the storage cannot be read.
    MissingExtraError, InvalidArgumentError
        If the URL's protocol needs a package that is not installed, or is unknown.
    """
    try:
        storage = Storage(url)
        names = storage.directories()
    except DasfprofError:
        raise
    except FileNotFoundError as error:
        raise SourceNotFoundError(f"{shown(url)}: {reason(error)}.") from error
    except Exception as error:
        raise TraceError(f"{shown(url)} cannot be read: {reason(error)}") from error
    stored_runs = [stored_run(storage, name) for name in names if runs.parse_run(name)]
    return sorted(stored_runs, key=lambda run: run.created, reverse=True)


def open_stored(url: str) -> list[Path]:
    """Copy the files of the run at a URL to this host, and return the paths of the copies.

    The copies exist until this process ends. Another call copies only data that has been added.

    Parameters
    ----------
    url
        URL of a directory that contains one run, or of a run's own directory. If a directory
        contains several runs, append ``/`` and a run's name, or the beginning of the name.

    Raises
    ------
    SourceNotFoundError
        If there is no run.
    InvalidArgumentError
        If several runs match. The message names them.
    TraceError, MissingExtraError
        If the storage cannot be read.
    """
    url = url.rstrip("/")
    stored_runs, prefix, directory = [], "", url
    parent, _, name = url.rpartition("/")
    is_top = parent.endswith("/")
    with nullcontext() if is_top else suppress(SourceNotFoundError):
        stored_runs = find_stored_runs(url)
    if not stored_runs and not is_top:
        directory, prefix = parent, name
        stored_runs = find_stored_runs(directory)
        if any(run.directory == prefix for run in stored_runs):
            stored_runs = [run for run in stored_runs if run.directory == prefix]
            prefix = ""
    run = choose_run(stored_runs, prefix, shown(directory), shown(url))
    files = run.fetch()
    if not files:
        raise SourceNotFoundError(
            f"run {run.name!r} in {shown(directory)} has no files yet. Each process uploads new "
            "events every 30 s, at run.flush() and at the end."
        )
    return files


def stored_run(storage: Storage, directory: str) -> StoredRun:
    """Return the run in a directory of a storage. The run may have no files yet."""
    # Each call returns the same object, because this object knows which copies exist.
    return _runs.setdefault((storage.url, directory), StoredRun(storage, directory))


@cache
def _directory_of_copies() -> Path:
    """Create a directory for copies, to be removed when the process ends, and return its path."""
    directory = Path(tempfile.mkdtemp(prefix="dasfprof-copies-"))

    def remove(pid: int = os.getpid()) -> None:
        if os.getpid() == pid:  # A forked process must not remove the directory.
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory
