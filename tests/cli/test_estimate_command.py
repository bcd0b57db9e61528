"""``dasfprof estimate``: the script ends at its first compute call, and nothing is computed."""

import json
from pathlib import Path

import pytest
from shell import invoke, shell

ARRAY = """
import sys
import dask.array as da

def never(block):
    assert not block.size, "computed"
    return block

print("began", sys.argv[1:])
x = da.random.random((1000, 1000), chunks=100)
total = x.map_blocks(never, dtype=float, meta=x._meta).sum()
try:
    {compute}
except Exception:
    print("swallowed")
print("went on")
"""
CLUSTER = """
import dask.array as da
from distributed import Client, LocalCluster

if __name__ == "__main__":
    with LocalCluster(
        n_workers=3, threads_per_worker=2, processes=False, dashboard_address=None,
        memory_limit="1 GB",
    ) as cluster, Client(cluster) as client:
        x = da.random.random((1000, 1000), chunks=100)
        {compute}
        print("went on")
"""


def script(place: Path, text: str, compute: str) -> Path:
    file = place / "pipeline.py"
    file.write_text(text.replace("{compute}", compute))
    return file


@pytest.mark.parametrize(
    "compute",
    [
        "total.compute()",
        pytest.param("total.persist()", marks=pytest.mark.whole_program),
    ],
)
def test_the_script_ends_at_its_first_compute(compute: str, tmp_path: Path) -> None:
    done = shell("dasfprof", "estimate", script(tmp_path, ARRAY, compute), "--size", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "began ['--size']" in done.stdout
    assert "went on" not in done.stdout
    assert "swallowed" not in done.stdout
    assert "pipeline.py:11" in done.stdout  # the line that built the graph
    assert " tasks in " in done.stdout


@pytest.mark.whole_program
@pytest.mark.parametrize("compute", ["x.sum().compute()", "client.persist(x)"])
def test_clients_send_nothing(compute: str, tmp_path: Path) -> None:
    file = script(tmp_path, CLUSTER, compute)
    done = shell("dasfprof", "estimate", "--json", file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["threads"] == [2, 2, 2]
    assert document["memory_limit"] == 1e9
    assert document["layers"][0]["Line"] in ("pipeline.py:10", "pipeline.py:11")
    assert document["tasks"] == sum(layer["Tasks"] for layer in document["layers"])
    assert "went on" not in done.stderr


@pytest.mark.whole_program
def test_futures_end_the_script_as_well(tmp_path: Path) -> None:
    file = script(tmp_path, CLUSTER, "client.submit(print, 'computed')")
    done = shell("dasfprof", "estimate", "--json", file, cwd=tmp_path)
    document = json.loads(done.stdout)
    assert (document["tasks"], document["layers"][0]["Function"]) == (1, "print")
    assert "computed" not in done.stderr


@pytest.mark.whole_program
def test_graphs_that_do_not_fit_or_are_not_there(tmp_path: Path) -> None:
    for text, compute, options, words in (
        (ARRAY, "total.compute()", ["--memory-limit", "10 kB"], "has 80 kB (built at pipeline.py:"),
        (ARRAY, "pass", [], "computed nothing with Dask"),
        ("1 / 0", "", [], "ZeroDivisionError"),
    ):
        file = script(tmp_path, text, compute)
        done = shell("dasfprof", "estimate", *options, file, cwd=tmp_path)
        assert (done.returncode, words in done.stderr) == (1, True), done.stderr
    assert invoke("estimate", tmp_path / "nowhere.py").exit_code == 2
