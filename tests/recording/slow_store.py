"""Asynchronous file system whose requests take a known time, and functions that call it."""

import asyncio
from functools import partial
from typing import Any

from fsspec.asyn import AsyncFileSystem, get_loop

#: Objects by path, shared by all instances in this process.
OBJECTS: dict[str, bytes] = {}
#: Reads of data objects whose names contain the first text fail, and with the second never return.
DENIED, ENDLESS = "denied", "endless"


class SlowSystem(AsyncFileSystem):  # type: ignore[misc]
    """File system with objects in memory, which sleeps before each request."""

    protocol = "slow"
    cachable = False
    #: Seconds per request. It is a class attribute because copies in tasks lose instance
    #: attributes.
    delay = 0.0

    async def _cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        await asyncio.sleep(self.delay)
        is_data = path.startswith("p/") or "/c/" in path
        if DENIED in path and is_data:
            raise PermissionError(path)
        if ENDLESS in path and is_data:
            await asyncio.Event().wait()
        if path not in OBJECTS:
            raise FileNotFoundError(path)
        return OBJECTS[path][start:end]

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        await asyncio.sleep(self.delay)
        OBJECTS[path] = bytes(value)

    async def _exists(self, path: str, **_: Any) -> bool:
        return path in OBJECTS

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        raise FileNotFoundError(path)

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        if path not in OBJECTS:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(OBJECTS[path]), "type": "file"}


def by_method(system: Any, paths: list[str]) -> list[bytes]:
    return [system.cat_file(path) for path in paths]


def by_list(system: Any, paths: list[str]) -> list[bytes]:
    return list(system.cat(paths).values())


def by_ranges(system: Any, paths: list[str]) -> list[bytes]:
    return system.cat_ranges(paths, [0] * len(paths), [10**6] * len(paths), on_error="raise")


def by_own_loop(system: Any, paths: list[str]) -> list[bytes]:
    async def read() -> list[bytes]:
        return await asyncio.gather(*map(system._cat_file, paths))

    return asyncio.run(read())


def by_other_loop(system: Any, paths: list[str]) -> list[bytes]:
    send = partial(asyncio.run_coroutine_threadsafe, loop=get_loop())
    return [reading.result() for reading in [send(system._cat_file(path)) for path in paths]]


def by_thread(system: Any, paths: list[str]) -> list[bytes]:
    async def read() -> list[bytes]:
        return [await asyncio.to_thread(system.cat_file, path) for path in paths]

    return asyncio.run(read())


WAYS = (by_method, by_list, by_ranges, by_own_loop, by_other_loop, by_thread)
