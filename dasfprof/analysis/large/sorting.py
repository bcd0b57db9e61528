"""Rows that parts of a run tell, sorted on disk by DuckDB: they may not fit into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dasfprof.analysis.large.spill import no_room
from dasfprof.analysis.numeric.sorted_rows import Rows

#: Memory that DuckDB takes, at most, and what it gives at a time: vectors of 2048 rows.
_MEMORY, _VECTORS = "800MB", 512


def write_rows(rows: pd.DataFrame, directory: Path) -> None:
    """Add rows to a directory.

    Raises
    ------
    CannotWriteError
        If there is no room.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(exist_ok=True)
    path = directory / f"{len(os.listdir(directory))}.parquet"
    with no_room(directory.parent):
        pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), path, compression="zstd")


@dataclass(frozen=True)
class SortedPieces:
    """The rows of a directory, sorted: each time that they are gone through, in pieces.

    Raises
    ------
    CannotWriteError
        If there is no room for what DuckDB keeps on disk meanwhile.
    """

    directory: Path
    #: The columns to sort by.
    by: tuple[str, ...]

    def __iter__(self) -> Iterator[Rows]:
        import duckdb

        order = ", ".join(f'"{name}"' for name in self.by)
        rows, room = str(self.directory / "*.parquet"), self.directory.parent
        with duckdb.connect() as connection:
            connection.execute(f"SET memory_limit = '{_MEMORY}'; SET threads = 2")
            connection.execute("SET preserve_insertion_order = false")
            connection.execute("SET temp_directory = $1", [str(room)])
            try:
                found = connection.execute(
                    f"SELECT * FROM read_parquet($1) ORDER BY {order}", [rows]
                )
                while len(piece := found.fetch_df_chunk(_VECTORS)):
                    yield {str(name): column.to_numpy() for name, column in piece.items()}
            except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
                with no_room(room):
                    raise OSError(28, str(error)) from error
