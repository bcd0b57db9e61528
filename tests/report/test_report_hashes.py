"""Keys that end in hashes, whole and, where there are too many for a page, in half."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path

import pytest
from opened_pages import Opener, compute
from traces import write_trace

from dasfprof import TraceAnalyser
from dasfprof.report.page import timeline_data

HASHES = [hashlib.md5(bytes([at]), usedforsecurity=False).hexdigest() for at in range(8)]
KEYS = [*(f"add-{digits}" for digits in HASHES), f"inc-{uuid.UUID(HASHES[0], version=4)}"]


@pytest.mark.parametrize("half", [False, True])
def test_keys_are_shown_found_and_linked(
    half: bool, open_page: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_data, "_MANY_HASHES", 5 if half else 5000)
    events = [
        compute(key, 1.0 + at, 0.5, 0, dependencies=KEYS[:at][-1:]) for at, key in enumerate(KEYS)
    ]
    trace = write_trace(tmp_path / "mine-TracePlugin-node-0.msgpack", *events)
    page = open_page(TraceAnalyser(trace).report(tmp_path / "report.html"))
    # Of a UUID two dashes are among the first sixteen digits.
    told = [key[: 22 if key.startswith("inc") else 20] + "…" if half else key for key in KEYS]

    def shown() -> list[str]:
        return page.texts("#task-table .rows .row > div:first-child")

    assert sorted(shown()) == sorted(told)
    page.search(HASHES[3], "1 found")
    assert shown() == told[3:4]
    page.tab.fill("#search", "")
    page.tab.evaluate(f"location.hash = '#task={KEYS[5]}'")
    page.until(lambda: page.details().get("Key") == told[5])
    assert page.texts("#details ul.needs button") == told[4:5]
    assert page.texts("#details ul.needed button") == told[6:7]
