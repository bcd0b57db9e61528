"""Each kind of edit that ``analyse --patch`` writes saves time in a program, as ``try`` measures.

For each kind, there is a similar program without a patch.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from shell import shell

pytestmark = pytest.mark.whole_program

PROGRAM = """\
import json
import time
from pathlib import Path
import dask.array as da
import dask.bag as db
import numpy as np
from distributed import Client
def parse(number):
    time.sleep({seconds})
    return number % 7
if __name__ == "__main__":
    Path("lines.json").write_text("\\n".join(json.dumps({{"n": n}}) for n in range(20_000)))
    many = 1500
    with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None):
        {lines}
"""


class Edited(NamedTuple):
    """Program, and the argument that the patch changes, or an empty text if there is no patch."""

    lines: str
    argument: str
    #: Seconds of each call of `parse`.
    seconds: float = 0.0


PROGRAMS = {
    # chunks=
    "ones": Edited(
        "x = da.ones((1400, 1400), chunks=(80, 80))\n"
        "print(float((x - x.mean(axis=0)).std().compute()))",
        "chunks=(80, 80)",
    ),
    # Other chunks would contain other random numbers.
    "random": Edited(
        "x = da.random.random((1400, 1400), chunks=(80, 80))\n"
        "print(float((x - x.mean(axis=0)).std().compute()) > 0)",
        "",
    ),
    # chunk()
    "xarray_dataset": Edited(
        "import xarray as xr\n"
        'x = xr.Dataset({"a": (("t", "x"), np.ones((1200, 400)))})\n'
        'y = x.chunk({"t": 4})\n'
        'print(float((y.a - y.a.mean("t")).std().compute()))',
        'chunk({"t": 4})',
    ),
    # These are the chunks of the result of map_blocks().
    "map_blocks": Edited(
        "x = da.from_array(np.arange(150_000.0), chunks=many // 3)\n"
        "y = x.map_blocks(np.sqrt, chunks=(500,))\n"
        "print(float((y - y.mean()).std().compute()))",
        "",
    ),
    # npartitions=
    "sequence": Edited(
        "b = db.from_sequence(range(5000), npartitions=500)\nprint(b.map(parse).sum().compute())",
        "npartitions=500",
    ),
    "long_items": Edited(
        "b = db.from_sequence(range(120), npartitions=24)\nprint(b.map(parse).sum().compute())",
        "",
        seconds=0.03,
    ),
    # blocksize=
    "read_json": Edited(
        'b = db.read_text("lines.json", blocksize=800).map(json.loads)\n'
        'print(b.pluck("n").sum().compute())',
        "blocksize=800",
    ),
    "long_lines": Edited(
        'b = db.read_text("lines.json", blocksize=200_000)\n'
        "print(b.map(len).map_partitions(lambda part: [parse(sum(part))]).sum().compute())",
        "",
        seconds=0.5,
    ),
    # partition_size=
    "pairs": Edited(
        "b = db.from_sequence(range(1000), partition_size=2)\nprint(b.map(parse).sum().compute())",
        "partition_size=2",
    ),
    "long_pairs": Edited(
        "b = db.from_sequence(range(120), partition_size=5)\nprint(b.map(parse).sum().compute())",
        "",
        seconds=0.03,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_edit_gains_or_is_not_offered(name: str, tmp_path: Path) -> None:
    if name.startswith("xarray"):
        pytest.importorskip("xarray")
    lines, argument, seconds = PROGRAMS[name]
    text = PROGRAM.format(seconds=seconds, lines=lines.replace("\n", "\n        "))
    (tmp_path / "program.py").write_text(text)
    done = shell("dasfprof", "run", "-d", "traces", "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = shell("dasfprof", "analyse", "--patch", "traces", cwd=tmp_path)
    removed = re.findall(r"^-([^-].*)$", done.stdout, re.MULTILINE)
    if not argument:
        assert (done.returncode, done.stdout) == (1, ""), done.stdout
        return
    assert done.returncode == 0, done.stderr
    assert len(removed) == 1
    assert argument in removed[0]

    (tmp_path / "fix.diff").write_text(done.stdout)
    done = shell("dasfprof", "try", "--json", "--patch", "fix.diff", "program.py", cwd=tmp_path)
    (trial,) = json.loads(done.stdout.partition("\n")[0])["tried"]
    assert (trial["verdict"], trial["results"]["kind"]) == ("gained", "equal"), trial["sentences"]
    assert trial["rule"] in ("tasks-too-small", "slow-dispatch")
