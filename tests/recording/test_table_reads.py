"""Complete reads of CSV and Parquet files by tasks are recorded, and repeated reads are found."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from clusters import new_client
from refuters import refute
from test_storage_calls import heard_of

import dasfprof
from dasfprof import TraceAnalyser

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tables")
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40_000, 10)))
    frame.columns = [f"c{number}" for number in range(10)]
    frame.to_csv(directory / "a.csv")
    frame.to_parquet(directory / "a.parquet")
    return directory


def test_files_that_are_read_completely(files: Path) -> None:
    csv, table = files / "a.csv", files / "a.parquet"
    for read, complete in (
        (lambda: pd.read_csv(csv), True),
        (lambda: pd.read_csv(csv, nrows=5), False),
        (lambda: pd.read_csv(csv, usecols=["c1"]), False),
        (lambda: pd.read_parquet(table), True),
        (lambda: pd.read_parquet(table, filters=[("c1", ">", 1)]), False),
        (lambda: parquet.read_table(table), True),
    ):
        heard = heard_of(lambda read=read: [read(), read()])
        assert heard.calls == []
        items = " ".join(row["items"] for row in heard.close()).split()
        assert [item[0] for item in items] == ["w"] * complete


def rows_of(path: str, number: int) -> float:
    frame = pd.read_csv(path)
    return float(frame.c1[number::20].sum())


def test_tasks_that_each_read_the_same_file(files: Path, tmp_path: Path) -> None:
    with (
        new_client(n_workers=1, threads_per_worker=2, processes=False) as client,
        dasfprof.profile(client, directory=tmp_path),
    ):
        client.gather(client.map(rows_of, [str(files / "a.csv")] * 40, range(40)))
    analyser = TraceAnalyser(tmp_path, progress=False)
    assert not refute(tmp_path, analyser.findings())
    assert not len(analyser.storage().query("Storage != 'disk'"))
    (finding,) = (each for each in analyser.findings() if each.rule == "repeated-reads")
    figures = finding.to_dict()["Figures"]
    assert (figures["sources"]["value"], figures["times"]["value"]) == (1, 40)
