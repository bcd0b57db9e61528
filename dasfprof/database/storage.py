"""`Storage`: a directory at a URL, such as ``s3://bucket/traces``, by way of fsspec.

fsspec comes with Dask, the libraries of most protocols do not. Each process finds its own
credentials, as these libraries do: in its environment, in files of its user, from its host.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec

from dasfprof.errors import InvalidArgumentError, MissingExtraError

_PASSWORD = re.compile(r"(?<=://)[^/@]*:[^/@]*@")
#: A `pathlib.Path` of a URL, which has lost a slash.
_LOST_SLASH = re.compile(r"^(s3a?|gs|gcs|az|abfss?|memory|https?|sftp|hdfs|file):/(?!/)")


def is_url(source: object) -> bool:
    """Return whether a source or directory is a URL rather than a path.

    Raises
    ------
    InvalidArgumentError
        If it is a URL that was made a path.
    """
    if not isinstance(source, str | os.PathLike):
        return False
    text = str(source)
    if not isinstance(source, str) and _LOST_SLASH.match(text):
        raise InvalidArgumentError(
            f"{text!r} is a URL as a path, which has lost a slash: pass the URL as a str."
        )
    return "://" in text


def shown(url: str) -> str:
    """Return a URL without the password that it may hold."""
    return _PASSWORD.sub("***@", url)


class Storage:
    """A directory at a URL.

    Paths are relative to it. What its library raises passes through; `reason` says it in words.
    Safe to use from several threads where the library is (`parallel`).

    Parameters
    ----------
    url
        What fsspec takes.

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

            # No cache: others write there as well.
            self._files, root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as error:
            raise _missing(url, error) from error
        self._root = str(root).rstrip("/")
        #: Whether several threads may use it at once.
        self.parallel = bool(self._files.async_impl)

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file, which replaces one that is there."""
        whole = f"{self._root}/{path}"
        try:
            self._files.pipe_file(whole, data)
        except FileNotFoundError:
            # Object storages have no directories. A bucket is never made, as a misspelt one
            # would be: that is what `create_parents` prevents.
            parts = path.split("/")[:-1]
            for end in range(len(parts) + 1):
                try:
                    directory = "/".join([self._root, *parts[:end]])
                    self._files.mkdir(directory, create_parents=False)
                except FileExistsError:
                    continue
            self._files.pipe_file(whole, data)

    def get(self, path: str) -> bytes:
        """Return the content of a file."""
        data: bytes = self._files.cat_file(f"{self._root}/{path}")
        return data

    def directories(self) -> list[str]:
        """Return the names of the directories in it."""
        entries = self._files.ls(self._root, detail=True)
        found = [str(one["name"]) for one in entries if one["type"] == "directory"]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the size of each file in a directory and below, by its path relative to that."""
        whole = f"{self._root}/{directory}"
        try:
            found = self._files.find(whole, detail=True)
        except FileNotFoundError:
            return {}
        return {
            path.partition(f"{directory}/")[2]: int(facts["size"] or 0)
            for path, facts in ((str(path), facts) for path, facts in found.items())
            if f"{directory}/" in path
        }


def check_backend(url: str) -> None:
    """Check that the package for a URL's protocol is installed; it is not imported, which blocks.

    Raises
    ------
    MissingExtraError
        If it is not; the message names it.
    InvalidArgumentError
        If fsspec does not know the protocol.
    """
    try:
        from fsspec.core import split_protocol
        from fsspec.registry import known_implementations, registry
    except ImportError as error:
        raise _missing(url, error) from error
    for link in url.split("::"):
        protocol = split_protocol(link)[0] or link
        if protocol in registry:
            continue
        known = known_implementations.get(protocol)
        if known is None:
            raise InvalidArgumentError(
                f"{shown(url)!r}: fsspec knows no protocol {protocol!r}. It knows s3, gs, abfs, "
                "file, sftp and others."
            )
        if find_spec(known["class"].partition(".")[0]) is None:
            raise _missing(url, known.get("err", known["class"]))


def _missing(url: str, what: object) -> MissingExtraError:
    """Return the error for a package that is not installed."""
    extra = "; `pip install 'dasfprof[s3]'` does" if url.startswith("s3") else ""
    return MissingExtraError(f"{shown(url)} needs another package: {what}{extra}.")


def reason(error: BaseException) -> str:
    """Say in words why a storage did not do what it was asked for."""
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
    """Return why this process cannot write an empty file there; None if it could."""
    try:
        Storage(url).put(path, b"")
    except Exception as error:  # of whatever library
        return reason(error)
    return None
