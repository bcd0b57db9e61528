"""Reading of cluster dumps. Any other file raises an error of dasfprof."""

import gzip
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from clusters import new_client, wait_until
from distributed import wait
from hypothesis import given
from hypothesis import strategies as st

from dasfprof.analysis.under_way import from_dump
from dasfprof.analysis.under_way.causes import find_causes
from dasfprof.analysis.under_way.from_dump import read_dump, state_from_dump
from dasfprof.analysis.under_way.state import ClusterState
from dasfprof.errors import DumpError, MissingExtraError, SourceNotFoundError

pytestmark = pytest.mark.whole_program


DUMPED = threading.Event()


def fails(_: Any = None) -> None:
    raise ValueError("a planted error")


def sleep(_: Any = None) -> None:
    DUMPED.wait(600)  # longer than the dumps take


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write a cluster dump."""
    place = tmp_path_factory.mktemp("dumps")
    with new_client(n_workers=2, threads_per_worker=1, processes=False) as client:
        done = client.submit(int, key="done-0", pure=False)
        failed = client.submit(fails, key=("fails", 1), pure=False)
        after = client.submit(len, failed, key="after-0")
        held = client.submit(len, "", key="held-0", resources={"GPU": 2}, pure=False)
        running = client.submit(sleep, key=("sleep", 0, "x"), pure=False)
        wait([done, after])
        scheduler = client.cluster.scheduler
        workers = scheduler.workers
        wait_until(
            lambda: scheduler.unrunnable and any(each.processing for each in workers.values())
        )
        client.dump_cluster_state(str(place / "dump"))
        DUMPED.set()
        yield place / "dump.msgpack.gz"
        del held, running


def state_of(path: Path | str) -> ClusterState:
    return state_from_dump(read_dump(str(path)))


def content_of(dump: Path) -> Any:
    return msgpack.unpackb(gzip.decompress(dump.read_bytes()), strict_map_key=False)


def test_facts(dump: Path) -> None:
    state = state_of(dump)
    assert abs(state.time - time.time()) < 300
    assert state.unfinished == 2
    assert state.counts == {
        "done": {"memory": 1},
        "fails": {"erred": 1},
        "after": {"erred": 1},
        "held": {"no-worker": 1},
        "sleep": {"processing": 1},
    }
    (task,) = state.tasks
    assert (task.key, task.function, task.state) == ("('sleep', 0, 'x')", "sleep", "executing")
    assert task.seconds is not None and task.seconds >= 0
    (held,) = state.held_back
    assert (held.key, held.unmet) == ("held-0", "no worker has GPU=2, and the maximum is 0")
    (failed,) = state.failed
    assert (failed.key, failed.function) == ("('fails', 1)", "fails")
    assert (failed.message, failed.dependents) == ("ValueError('a planted error')", 1)
    assert [worker.threads for worker in state.workers] == [1, 1]
    assert {worker.status for worker in state.workers} == {"running"}
    assert {worker.answered for worker in state.workers} == {True}
    (client,) = [client for client in state.clients if client.wanted]
    assert (client.wanted, client.unfinished) == (5, 2)
    kinds = {cause.kind: cause.certainty for cause in find_causes(state)}
    assert kinds == {"error": "certain", "no-worker": "certain"}


def kinds_of(content: Any) -> dict[str, Any]:
    """Return the keys of the causes in a dump, by kind."""
    return {cause.kind: cause.keys for cause in find_causes(state_from_dump(content))}


def test_a_worker_that_did_not_answer(dump: Path) -> None:
    content = content_of(dump)
    content["workers"][next(iter(content["workers"]))] = "OSError('Timed out')"
    assert {worker.answered for worker in state_from_dump(content).workers} == {True, False}
    assert "worker-silent" in kinds_of(content)


def test_a_task_that_its_worker_does_not_know(dump: Path) -> None:
    content = content_of(dump)
    for worker in content["workers"].values():
        worker["tasks"] = {}
    # It was assigned just before the dump: its worker may have written its part earlier.
    assert "views-differ" not in kinds_of(content)
    for entry in content["scheduler"]["transition_log"]:
        entry[-1] -= 100
    assert kinds_of(content)["views-differ"] == ("('sleep', 0, 'x')",)


def test_where_dumps_are(dump: Path, tmp_path: Path) -> None:
    assert state_of(f"file://{dump}").unfinished == 2
    with pytest.raises(MissingExtraError, match="gcsfs"):
        read_dump("gs://bucket/dump.msgpack.gz")
    with pytest.raises(SourceNotFoundError, match=r"nothing\.msgpack"):
        read_dump(str(tmp_path / "nothing.msgpack"))
    with pytest.raises(DumpError):
        read_dump(str(tmp_path))


def test_credentials_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(DumpError, match="credentials"):
        read_dump("s3://bucket/dump.msgpack.gz")


FOREIGN = {
    "empty": b"",
    "text": b"Dear scheduler: what is it?\n",
    "json": b"[1, 2]",
    "a map of something else": msgpack.packb({"scheduler": {"tasks": 3}, "workers": []}),
    "no tasks": msgpack.packb({"scheduler": {}, "workers": {}}),
    "gzip of nothing": gzip.compress(b""),
    "keys that are lists": b"\x81\x91\x01\x01",
    "binary": bytes(range(256)),
    "yaml": b"scheduler: !!python/object/apply:os.system ['false']\n",
    "deep msgpack": b"\x81\x01" + b"\x91" * 5000,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(FOREIGN[name])
    with pytest.raises(DumpError, match="foreign"):
        read_dump(str(path))


def test_cut_and_damaged_files(dump: Path, tmp_path: Path) -> None:
    content = dump.read_bytes()
    path = tmp_path / "damaged.msgpack.gz"
    for end in (3, 11, len(content) // 2, len(content) - 9):
        path.write_bytes(content[:end])
        with pytest.raises(DumpError, match="damaged"):
            read_dump(str(path))
    path.write_bytes(content[:100] + b"\0\0\0\0" + content[104:])
    with pytest.raises(DumpError, match="damaged"):
        read_dump(str(path))


def test_a_file_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(from_dump, "MOST_BYTES", 10_000)
    path = tmp_path / "large"
    path.write_bytes(gzip.compress(b"\x80" * 20_000))
    with pytest.raises(DumpError, match=r"more than 10 kB"):
        read_dump(str(path))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(data=st.data())
def test_any_values_in_a_dump(dump: Path, data: Any) -> None:
    """Any content gives a state and causes."""
    content = content_of(dump)
    for _ in range(3):
        part: Any = data.draw(st.sampled_from((content["scheduler"], content["workers"])))
        while True:
            name = data.draw(st.sampled_from(sorted(part, key=str)))
            inner = part[name]
            if isinstance(inner, dict) and inner and data.draw(st.booleans()):
                part = inner
                continue
            if name != "tasks" or part is not content["scheduler"]:
                part[name] = data.draw(VALUES)
            break
    find_causes(state_from_dump(content))
