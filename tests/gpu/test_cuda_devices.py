"""Devices that CUDA shows to a process, from its environment variables and NVML's list.

Expected values follow the CUDA programming guide, "CUDA Environment Variables".
"""

import pytest
from stand_ins import uuid_of

from dasfprof.recording.probes.nvml import Device, visible_devices


def gpu(letter: str, index: int, bus: int, name: str = "A100", parts: str = "") -> Device:
    instances = tuple(
        Device(None, uuid_of(part, "MIG"), index, "A100 MIG", (0, bus, 0), is_instance=True)
        for part in parts
    )
    place = (0, bus, 0)
    return Device(
        None, uuid_of(letter), index, name, place, mig_mode=bool(parts), instances=instances
    )


#: The order on the bus is a, b, c; NVML's order is c, a, b.
ALIKE = [gpu("c", 0, 0x86), gpu("a", 1, 0x3B), gpu("b", 2, 0x41)]
UNLIKE = [gpu("c", 0, 0x86, "H100"), gpu("a", 1, 0x3B), gpu("b", 2, 0x41)]
ONE_IN_MIG_MODE = [gpu("a", 0, 0x3B, parts="de")]
SOME_IN_MIG_MODE = [gpu("a", 0, 0x3B, parts="de"), gpu("b", 1, 0x41)]


def letters(devices: tuple[Device, ...]) -> str:
    return "".join(device.uuid[4] for device in devices)


@pytest.mark.parametrize(
    ("installed", "variable", "expected", "match"),
    [
        (ALIKE, None, "abc", "alike"),
        (ALIKE, "0", "a", "alike"),
        (ALIKE, "1,2,0", "bca", "alike"),
        (ALIKE, " 2 , 0 ", "ca", "alike"),
        (ALIKE, "1,-1,0", "b", "alike"),
        (ALIKE, "1,7,0", "b", "alike"),
        (ALIKE, "0,0", "a", "alike"),
        (ALIKE, uuid_of("b"), "b", "uuid"),
        (ALIKE, f"{uuid_of('b')},{uuid_of('a')}", "ba", "uuid"),
        (ALIKE, "GPU-cc,GPU-a", "ca", "uuid"),
        (ALIKE, "GPU-c,GPU-f,GPU-a", "c", "uuid"),
        (UNLIKE, uuid_of("a"), "a", "uuid"),
        (ONE_IN_MIG_MODE, uuid_of("e", "MIG"), "e", "uuid"),
        (SOME_IN_MIG_MODE, f"{uuid_of('e', 'MIG')},{uuid_of('d', 'MIG')}", "ed", "uuid"),
        (ONE_IN_MIG_MODE, "0", "d", "only"),
        (ONE_IN_MIG_MODE, None, "d", "only"),
        ([gpu("a", 0, 0x3B)], "0", "a", "only"),
    ],
)
def test_visible_devices(
    installed: list[Device], variable: str | None, expected: str, match: str
) -> None:
    environment = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    visible = visible_devices(installed, environment)
    assert letters(visible.devices) == expected
    assert visible.match is not None
    assert visible.match.value == match
    assert visible.worker_device is visible.devices[0]
    assert visible.availability.value == ("MIG" if expected[0] in "de" else "available")


@pytest.mark.parametrize(
    ("installed", "variable", "reason"),
    [
        (ALIKE, "", "hidden"),
        (ALIKE, "-1", "hidden"),
        (ALIKE, "none", "hidden"),
        (ALIKE, "NoDevFiles", "hidden"),
        (ALIKE, "3", "not found"),
        (ALIKE, uuid_of("f"), "not found"),
        (ALIKE, "GPU-", "not found"),
        (ONE_IN_MIG_MODE, uuid_of("f", "MIG"), "not found"),
        (UNLIKE, "0", "order unknown"),
        (UNLIKE, None, "order unknown"),
        (SOME_IN_MIG_MODE, "1", "order unknown"),
    ],
)
def test_why_no_device_is_visible(
    installed: list[Device], variable: str | None, reason: str
) -> None:
    environment = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    visible = visible_devices(installed, environment)
    assert visible.devices == ()
    assert visible.worker_device is None
    assert visible.availability.value == reason


def test_order_on_the_bus_makes_numbers_of_unlike_devices_certain() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "2,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    visible = visible_devices(UNLIKE, environment)
    assert letters(visible.devices) == "ca"
    assert visible.match is not None
    assert visible.match.value == "pci"
