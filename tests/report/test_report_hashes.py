"""Keys that end in hashes, whole and, where there are too many for a page, in half."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from typing import Any

import pytest
from opened_pages import OpenedPage, Opener, compute
from traces import write_trace

from dasfprof import TraceAnalyser
from dasfprof.report.page import timeline_data

HASHES = [hashlib.md5(bytes([at]), usedforsecurity=False).hexdigest() for at in range(8)]
KEYS = [*(f"add-{digits}" for digits in HASHES), f"inc-{uuid.UUID(HASHES[0], version=4)}"]


@pytest.fixture(params=[False, True], ids=["whole", "half"])
def page(
    request: Any, open_page: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OpenedPage:
    if request.param:
        monkeypatch.setattr(timeline_data, "_MANY_HASHES", 5)
    events = [
        compute(key, 1.0 + at, 0.5, 0, dependencies=KEYS[:at][-1:]) for at, key in enumerate(KEYS)
    ]
    trace = write_trace(tmp_path / "mine-TracePlugin-node-0.msgpack", *events)
    opened = open_page(TraceAnalyser(trace).report(tmp_path / "report.html"))
    opened.half = request.param  # type: ignore[attr-defined]
    return opened


def shown(page: OpenedPage) -> list[str]:
    return page.texts("#task-table .rows .row > div:first-child")


def as_told(page: OpenedPage, key: str) -> str:
    """Give a key as the page is to show it."""
    if not getattr(page, "half", False):
        return key
    return key[: key.index("-") + 1 + (18 if key.startswith("inc") else 16)] + "…"


def test_keys(page: OpenedPage) -> None:
    assert set(shown(page)) == {as_told(page, key) for key in KEYS}
    halved = "first 16 digits" in page.text("#notes")
    assert halved == getattr(page, "half", False)


QUERIES = [
    KEYS[3],
    KEYS[8],
    HASHES[3],
    HASHES[3][:10],
    HASHES[3][5:14],
    HASHES[3][3:7].upper(),
    f"add-{HASHES[3][0]}",
    "d-" + HASHES[3][:9],
    "add-0000000000",
    "c",
]


def test_search(page: OpenedPage) -> None:
    texts = [as_told(page, key) for key in KEYS]
    for query in QUERIES:
        told = as_told(page, query) if query in KEYS else query
        if query == HASHES[3] and getattr(page, "half", False):
            told = query[:16]
        wanted = sorted(text for text in texts if told.lower() in text)
        page.tab.fill("#search", query)
        page.until(
            lambda wanted=wanted: (
                (page.text("#found"), sorted(shown(page))) == (f"{len(wanted)} found", wanted)
            )
        )


def test_a_link_with_the_whole_key(page: OpenedPage) -> None:
    page.tab.evaluate(f"location.hash = '#task={KEYS[5]}'")
    page.until(lambda: page.details().get("Key") == as_told(page, KEYS[5]))
    assert page.texts("#details ul.needs button") == [as_told(page, KEYS[4])]
    assert page.texts("#details ul.needed button") == [as_told(page, KEYS[6])]


def test_sorting_by_key(page: OpenedPage) -> None:
    page.tab.locator("#task-table .head button", has_text="Task Key").click()
    assert shown(page) == sorted(as_told(page, key) for key in KEYS)
