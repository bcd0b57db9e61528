"""Make the dictionary with which small blocks are deflated, from trace files.

``python benchmarks/deflate_dictionary.py FILE...``, with the files of `dasfprof demo`, writes
`dictionary.zlib`, for `dasfprof.database.frames`, and prints its lines in FORMAT.md.
The dictionary contains what blocks have in common: names and forms of columns, and words of Dask.
Another dictionary would be another version of the format.
"""

from __future__ import annotations

import base64
import sys
import textwrap
import zlib
from pathlib import Path
from typing import Any

from dasfprof.database import columns, frames, values
from dasfprof.database.blocks import BlockEncoder
from dasfprof.database.frames import inflate
from dasfprof.schema import KINDS

#: Texts that occur in the blocks of many pipelines.
WORDS = {
    *("memory", "erred", "released", "success", "running", "scheduler"),
    *("update-graph", "task-finished", "finalize-hlgfinalizecompute"),
    *("builtins.float", "builtins.int", "builtins.list", "builtins.NoneType"),
    *("numpy.ndarray", "numpy.float64", "float64", "float32", "int64"),
    *("pandas.DataFrame", "pandas.Series"),
    *("pandas.core.frame.DataFrame", "pandas.core.series.Series"),
}
#: Prefixes of texts that otherwise differ.
PREFIXES = ("tcp://127.0.0.1:", "worker-")
#: Minimum number of rows of a block whose columns have their usual forms.
TYPICAL_ROWS = 5


def blocks(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Return the shortest typical block of each event; the most frequent events come last."""
    recorded: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        for _, payload in frames.scan_frames(path.read_bytes(), frames.Damage()):
            block = values.unpack(inflate(payload))
            if block["kind"] == "events":
                recorded.setdefault(block["name"], []).append(block)
    typical = {
        name: min(like, key=lambda block: (block["rows"] < TYPICAL_ROWS, block["rows"]))
        for name, like in recorded.items()
    }
    return {name: typical[name] for name in sorted(typical, key=lambda name: len(recorded[name]))}


def other_blocks(recorded: set[str]) -> list[bytes]:
    """Return empty blocks of the events that plugins can record and the files do not contain."""
    return [
        BlockEncoder(schema).payload(clock=[0.0, 0.0], dropped=0, errors=0)
        for schema in KINDS.values()
        if schema.name not in recorded
    ]


def common(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without the values that belong to its run alone."""
    parts = {
        part: {name: _common(column) for name, column in block[part].items()}
        for part in ("fields", "args")
    }
    block = {name: value for name, value in block.items() if name != "padding"}
    return {**block, "clock": [0.0, 0.0], "sequence": _common(block["sequence"]), **parts}


def _common(column: list[Any]) -> list[Any]:
    form, *parts = column
    if form in (columns.NUMBER, columns.OPTIONAL):
        return [form, *parts[:3], b""]
    if form == columns.DICTIONARY:
        return [form, _common(parts[0]), [entry for entry in map(_word, parts[1]) if entry != ""]]
    if form == columns.KEYS:
        return [form, b"", list(filter(None, map(_word, parts[1]))), *map(_common, parts[2:])]
    if form == columns.LIST:
        return [form, *map(_common, parts)]
    return column


def _word(entry: Any) -> Any:
    if isinstance(entry, str) and entry not in WORDS:
        return next((prefix for prefix in PREFIXES if entry.startswith(prefix)), "")
    return entry if entry is None or isinstance(entry, str) or entry == {} else ""


def main(paths: list[str]) -> None:
    typical = blocks([Path(path) for path in paths])
    # A reference to a text takes fewer bits if the text is near the end of the dictionary.
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
