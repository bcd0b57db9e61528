"""The GPU probe with the stand-in driver and the real pynvml, in separate processes."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from forked_programs import ForkedPrograms
from stand_ins import Driver, device, instance, uuid_of

pytest.importorskip("pynvml", reason="the package nvidia-ml-py is not installed")

IMPORTS = """
import ctypes, json, sys, time
import dask
from dasfprof.recording.probes import gpu
from dasfprof.recording.probes import nvml as gpu_reader
"""
#: Program that takes samples of a worker, which is responsible for all devices or named ones.
PROGRAM = """
dask.config.refresh()  # of the variables of this process
ticks, seconds, duties, before, share = argument
gpu.OTHERS_AFTER = gpu_reader.SLOW_INTERVAL = 0.0
gpu.CPU_SHARE = share or float("inf")

class Duty:
    def __init__(self, uuid):
        self.is_held = duties is None or uuid in duties
    def held(self):
        return self.is_held
    def release(self):
        pass

probe = gpu.GpuProbe(Duty)
for tick in range(ticks):
    exec(before, {"tick": tick, "ctypes": ctypes, "sys": sys})
    for schema, row in probe.sample(True):
        names = [name for name, _ in schema.fields + schema.args]
        print(json.dumps([schema.name, tick, dict(zip(names, row, strict=True))]))
    print(json.dumps(["own", tick, probe.device_usage]))
    time.sleep(seconds)
probe.close()
probe.close()
"""


class Processes(dict[str, ForkedPrograms]):
    """Processes that fork the program, by library path."""

    def __missing__(self, path: str) -> ForkedPrograms:
        environment = {**os.environ, "LD_LIBRARY_PATH": path}
        self[path] = ForkedPrograms(IMPORTS, PROGRAM, environment)
        return self[path]


PROCESSES = Processes()


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    yield
    for process in PROCESSES.values():
        process.close()
    PROCESSES.clear()


def sample(
    driver: Driver,
    ticks: int = 1,
    seconds: float = 0.0,
    duties: list[str] | None = None,
    before: str = "",
    share: float = 0.0,
    **environment: str | None,
) -> dict[str, list[dict[str, Any]]]:
    """Run the probe for some ticks in a new process, and return its rows by event name."""
    variables = {**os.environ, **driver.environment, **environment}
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        variables[name] = environment.get(name)
    known = {name: value for name, value in variables.items() if value is not None}
    process = PROCESSES[known["LD_LIBRARY_PATH"]]
    argument = [ticks, seconds, duties, before, share]
    written, complaints = process.run(argument, known, driver.script.parent)
    assert complaints == ""
    rows: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("GPU Devices", "GPU Usage", "GPU Failure", "own")
    }
    for line in written.splitlines():
        name, tick, row = json.loads(line)
        rows[name].append({"tick": tick, **row} if name != "own" else row)
    return rows


TWO = device("a", "41") + device("b", "3b", "utilization 7\nmemory_used 4000000000")


def test_one_reading_has_every_value_in_its_unit(driver: Driver) -> None:
    driver.answer("driver 550.54.15\n" + device("a", "41"))
    rows = sample(driver)
    (about,), (usage,) = rows["GPU Devices"], rows["GPU Usage"]
    assert about["availability"] == "available"
    timestamp = usage.pop("timestamp")
    assert about["timestamp"] <= timestamp
    assert usage == {
        "tick": 0,
        "uuid": uuid_of("a"),
        "index": 0,
        "name": "Stand-in",
        "utilization": 50,
        "memory_utilization": 25,
        "memory_used": 3_000_000_000,
        "memory_total": 16_000_000_000,
        "power": 70.5,
        "sm_clock": 1410,
        "memory_clock": 1215,
        "temperature": 61,
        "pcie_tx": 102_400.0,
        "pcie_rx": 204_800.0,
        "processes": [[7, 1000]],
    }
    assert rows["own"] == [[0, 50, 3_000_000_000, None]]
    assert rows["GPU Failure"] == []


def test_the_processes_own_memory_is_told_apart(driver: Driver) -> None:
    driver.answer(device("a", "41", "processes 7 1000 PID 250000000 8 2000"))
    enter_pid = """
import os
path = os.environ["DASFPROF_TEST_NVML"]
text = open(path).read().replace("PID", str(os.getpid()))
open(path + ".new", "w").write(text)
os.replace(path + ".new", path)
"""
    rows = sample(driver, before=enter_pid)
    (about,), (usage,) = rows["GPU Devices"], rows["GPU Usage"]
    assert usage["processes"] == [[7, 1000], [about["pid"], 250_000_000], [8, 2000]]
    assert rows["own"] == [[0, 50, 3e9, 250_000_000]]


@pytest.mark.parametrize(
    ("variable", "own", "index"),
    [
        ("0,1", "b", 1),
        ("1,0", "a", 0),
        (uuid_of("a"), "a", 0),
        ("GPU-bbbb", "b", 1),
        (None, "b", 1),
    ],
)
def test_the_own_device_is_that_of_cuda(
    driver: Driver, variable: str | None, own: str, index: int
) -> None:
    """Device b is first on the bus, so CUDA's order is b, a and NVML's order is a, b."""
    driver.answer(TWO)
    rows = sample(driver, CUDA_VISIBLE_DEVICES=variable)
    (about,) = rows["GPU Devices"]
    assert (about["uuid"], about["index"]) == (uuid_of(own), index)
    utilization = {"a": 50, "b": 7}[own]
    assert rows["own"] == [[index, utilization, {"a": 3e9, "b": 4e9}[own], None]]
    assert rows["GPU Usage"][0]["utilization"] == utilization
    devices = [*"ab"] if variable is None or "," in variable else [own]
    assert {row["uuid"] for row in rows["GPU Usage"]} == set(map(uuid_of, devices))


def test_a_mig_instance_tells_its_memory_and_says_why_nothing_else(driver: Driver) -> None:
    driver.answer(device("a", "41") + instance("d") + instance("e"))
    rows = sample(driver, ticks=2, CUDA_VISIBLE_DEVICES=uuid_of("e", "MIG"))
    (about,) = rows["GPU Devices"]
    assert about["availability"] == "MIG"
    assert (about["uuid"], about["index"]) == (uuid_of("e", "MIG"), 0)
    for usage in rows["GPU Usage"]:
        assert (usage["memory_used"], usage["memory_total"]) == (5e8, 2e9)
        assert usage["utilization"] is None
        assert usage["power"] is None
    assert {row["reason"] for row in rows["GPU Failure"]} == {"MIG"}
    assert sum(row["reading"] == "utilization" for row in rows["GPU Failure"]) == 1


def test_a_reading_that_fails_is_missing_and_the_others_go_on(driver: Driver) -> None:
    driver.answer(
        device("a", "41", "utilization 1 2 3\nfail nvmlDeviceGetUtilizationRates 0 999 0")
        + device("b", "42", "temperature -\nfail nvmlDeviceGetPowerUsage 4")
    )
    rows = sample(driver, ticks=3)
    first = [row for row in rows["GPU Usage"] if row["uuid"] == uuid_of("a")]
    assert [row["utilization"] for row in first] == [1, None, 2]
    assert [row["memory_used"] for row in first] == [3e9] * 3
    second = [row for row in rows["GPU Usage"] if row["uuid"] == uuid_of("b")]
    assert [(row["power"], row["temperature"]) for row in second] == [(None, None)] * 3
    assert [row["utilization"] for row in second] == [50] * 3
    failures = {(row["uuid"][4], row["reading"]): row["reason"] for row in rows["GPU Failure"]}
    assert failures == {
        ("a", "utilization"): "failed",
        ("b", "power"): "no permission",
        ("b", "temperature"): "not supported",
    }
    assert len(rows["GPU Failure"]) == len(failures)


def test_older_bindings_are_asked_for_what_they_have(driver: Driver) -> None:
    driver.answer(device("a", "41"))
    lacks = "import pynvml; del pynvml.nvmlDeviceGetPowerUsage"
    rows = sample(driver, before=lacks)
    (usage,) = rows["GPU Usage"]
    assert (usage["memory_used"], usage["power"], usage["utilization"]) == (3e9, None, 50)
    failures = {(row["reading"], row["reason"]) for row in rows["GPU Failure"]}
    assert failures == {("power", "not supported")}


def test_a_device_that_falls_off_the_bus_ends_its_samples_alone(driver: Driver) -> None:
    driver.answer(device("a", "41", "fail nvmlDeviceGetPowerUsage 0 15") + device("b", "42"))
    rows = sample(driver, ticks=4)
    assert [row["availability"] for row in rows["GPU Devices"]] == ["available", "lost"]
    assert rows["GPU Devices"][1]["uuid"] == uuid_of("a")
    ticks = {letter: [] for letter in "ab"}
    for row in rows["GPU Usage"]:
        ticks[row["uuid"][4]].append(row["tick"])
    assert ticks == {"a": [0], "b": [0, 1, 2, 3]}
    assert rows["own"] == [[0, 50, 3e9, None], *[[None] * 4] * 3]


def test_devices_of_others_are_left_to_them(driver: Driver) -> None:
    driver.answer(TWO)
    rows = sample(driver, duties=[uuid_of("a")], CUDA_VISIBLE_DEVICES="0,1")
    assert [row["uuid"] for row in rows["GPU Usage"]] == [uuid_of("a")]
    assert rows["GPU Devices"][0]["uuid"] == uuid_of("b")
    assert rows["own"] == [[None] * 4]


def test_readings_stay_within_their_share_of_a_core(driver: Driver) -> None:
    """The share is so small that one reading uses it up for minutes."""
    driver.answer(device("a", "41"))
    rows = sample(driver, ticks=4, seconds=0.05, share=1e-7)
    assert [row["tick"] for row in rows["GPU Usage"]] == [0]
    assert rows["own"] == [[0, 50, 3e9, None], *[[None] * 4] * 3]


@pytest.mark.parametrize(
    ("script", "environment", "reason"),
    [
        ("fail nvmlInit 9", {}, "no driver"),
        ("fail nvmlInit 18", {}, "no driver"),
        ("fail nvmlInit 4", {}, "no permission"),
        ("fail nvmlInit 999", {}, "failed"),
        ("fail nvmlDeviceGetCount 999\n" + TWO, {}, "failed"),
        ("driver 550", {}, "no device"),
        (TWO, {"CUDA_VISIBLE_DEVICES": ""}, "hidden"),
        (TWO, {"CUDA_VISIBLE_DEVICES": "-1"}, "hidden"),
        (TWO, {"CUDA_VISIBLE_DEVICES": "GPU-cccc"}, "not found"),
        (device("a", "41", "fail nvmlDeviceGetHandleByIndex 4"), {}, "no permission"),
        (TWO, {"DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False"}, "turned off"),
        (TWO, {"LD_LIBRARY_PATH": "broken"}, "no library"),
    ],
)
def test_why_there_are_no_readings(
    driver: Driver, script: str, environment: dict[str, str], reason: str
) -> None:
    driver.answer(script)
    if environment.get("LD_LIBRARY_PATH"):  # a library that cannot be loaded
        broken = driver.script.with_name("libnvidia-ml.so.1")
        broken.write_bytes(b"")
        environment = {"LD_LIBRARY_PATH": str(broken.parent)}
    rows = sample(driver, ticks=2, **environment)
    assert [row["availability"] for row in rows["GPU Devices"]] == [reason]
    assert rows["GPU Usage"] == []
    assert rows["own"] == [[None] * 4] * 2


def test_without_the_binding_there_is_a_reason_and_no_error(driver: Driver) -> None:
    driver.answer(TWO)
    rows = sample(driver, ticks=2, before="sys.modules['pynvml'] = None")
    assert [row["availability"] for row in rows["GPU Devices"]] == ["no pynvml"]


def test_unlike_devices_by_number_are_all_read_and_none_is_the_worker_s(driver: Driver) -> None:
    """Only CUDA knows their order."""
    driver.answer(device("a", "41", "name Small") + device("b", "42", "name Large"))
    rows = sample(driver, ticks=2, CUDA_VISIBLE_DEVICES="0,1")
    (about,) = rows["GPU Devices"]
    assert (about["availability"], about["uuid"]) == ("order unknown", None)
    assert rows["own"] == [[None] * 4] * 2
    assert [row["uuid"][4] for row in rows["GPU Usage"] if row["tick"] == 0] == ["a", "b"]
