"""Makes the dictionary that small blocks are deflated with, from trace files.

``python benchmarks/deflate_dictionary.py FILE...``, with the files of `dasfprof demo`, writes
`dictionary.zlib`, for `dasfprof.database.compression`, and prints its lines in FORMAT.md.
It holds what blocks have in common: the names of columns, their forms and the words of Dask. A
change would make another version of the format.
"""

from __future__ import annotations

import base64
import sys
import textwrap
import zlib
from pathlib import Path
from typing import Any

from dasfprof.database import columns, frames, values
from dasfprof.database.block_codec import BlockEncoder
from dasfprof.database.compression import inflate
from dasfprof.schema import KINDS

#: Texts that stand in the blocks of many pipelines.
WORDS = {
    *("memory", "erred", "released", "success", "running", "scheduler"),
    *("update-graph", "task-finished", "finalize-hlgfinalizecompute"),
    *("builtins.float", "builtins.int", "builtins.list", "builtins.NoneType"),
    *("numpy.ndarray", "numpy.float64", "float64", "float32", "int64"),
    *("pandas.DataFrame", "pandas.Series"),
    *("pandas.core.frame.DataFrame", "pandas.core.series.Series"),
}
#: Begins of texts whose rest is never the same.
BEGINS = ("tcp://127.0.0.1:", "worker-")
#: The fewest rows of a block that shows the usual forms of its columns.
TYPICAL_ROWS = 5


def blocks(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Give the shortest typical block of each event, those that are written most often last."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        for _, payload in frames.scan_frames(path.read_bytes(), frames.Damage()):
            block = values.unpack(inflate(payload))
            if block["kind"] == "events":
                found.setdefault(block["name"], []).append(block)
    typical = {
        name: min(like, key=lambda block: (block["rows"] < TYPICAL_ROWS, block["rows"]))
        for name, like in found.items()
    }
    return {name: typical[name] for name in sorted(typical, key=lambda name: len(found[name]))}


def other_blocks(recorded: set[str]) -> list[bytes]:
    """Give blocks without rows of what the plugins record and the files lack."""
    return [
        BlockEncoder(schema).payload(clock=[0.0, 0.0], dropped=0, errors=0)
        for schema in KINDS.values()
        if schema.name not in recorded
    ]


def common(block: dict[str, Any]) -> dict[str, Any]:
    """Take out of a block what is of its run alone."""
    parts = {
        part: {name: _common(column) for name, column in block[part].items()}
        for part in ("fields", "args")
    }
    block = {name: value for name, value in block.items() if name != "padding"}
    return {**block, "clock": [0.0, 0.0], "sequence": _common(block["sequence"]), **parts}


def _common(column: list[Any]) -> list[Any]:
    form, *rest = column
    if form in (columns.NUMBER, columns.OPTIONAL):
        return [form, *rest[:3], b""]
    if form == columns.DICTIONARY:
        return [form, _common(rest[0]), [entry for entry in map(_word, rest[1]) if entry != ""]]
    if form == columns.KEYS:
        return [form, b"", list(filter(None, map(_word, rest[1]))), *map(_common, rest[2:])]
    if form == columns.LIST:
        return [form, *map(_common, rest)]
    return column


def _word(entry: Any) -> Any:
    if isinstance(entry, str) and entry not in WORDS:
        return next((begin for begin in BEGINS if entry.startswith(begin)), "")
    return entry if entry is None or isinstance(entry, str) or entry == {} else ""


def main(paths: list[str]) -> None:
    typical = blocks([Path(path) for path in paths])
    # What is nearer to the end is found sooner and takes fewer bits to name.
    words = map(values.pack, sorted(WORDS))
    common_parts = (values.pack(common(block)) for block in typical.values())
    dictionary = b"".join((*words, *other_blocks({*typical}), *common_parts))
    deflated = zlib.compress(dictionary, 9)
    Path("dictionary.zlib").write_bytes(deflated)
    text = base64.b64encode(deflated).decode()
    print("\n".join(textwrap.wrap(text, 96)))
    print(f"{len(dictionary)} bytes, CRC-32 {zlib.crc32(dictionary):08x}")


if __name__ == "__main__":
    main(sys.argv[1:])
