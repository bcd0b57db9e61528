"""Charts of the report name their limits and their outliers, in a real browser."""

from __future__ import annotations

from pathlib import Path

from opened_pages import GUTTER, Opener
from traces import Plan, Task, filled

SIZES = {
    "memory_limit": 1_000_000_000,
    "memory_target": 600_000_000,
    "memory_spill": 700_000_000,
    "memory_pause": 800_000_000,
}


def test_limits_are_those_of_the_workers(open_page: Opener, tmp_path: Path) -> None:
    used = [(0, at, {"cpu": 12.0, "memory": 750_000_000}) for at in (0.0, 1.0)]
    held = [(0, at, {"size": 500_000_000, "state": "running"}) for at in (0.0, 1.0)]
    plan = Plan(filled(["load"], 0.5, count=4), used=used, held=held, memory_sizes=[SIZES, SIZES])
    analyser = plan.write(tmp_path / "traces")
    page = open_page(analyser.report(tmp_path / "limits.html"))
    workers = analyser.trace.workers.query("kind == 'worker'")
    assert {name: set(workers[name]) for name in SIZES} == {
        name: {size} for name, size in SIZES.items()
    }
    shown = {
        chart.locator("canvas").get_attribute("aria-label").split(" over ")[0]: chart.locator(
            "span.limit"
        ).all_text_contents()
        for chart in page.tab.locator("#charts .chart").all()
    }
    # A share has its line however low the readings are.
    assert shown["CPU of workers"] == ["one core: 100 %"]
    assert shown["Memory of workers"] == [
        "a worker's limit: 1 GB",
        "a worker pauses: 800 MB",
        "a worker spills to disk: 700 MB",
    ]
    assert shown["Results held"] == ["a worker spills to disk: 600 MB"]
    # Names stand above the curves, not upon them.
    for chart in page.tab.locator("#charts .chart").all():
        name, curve = (chart.locator(part).bounding_box() for part in ("output", "canvas"))
        assert name["y"] + name["height"] <= curve["y"] + 0.5


def test_limits_of_some_workers_are_said_to_be_so(open_page: Opener, tmp_path: Path) -> None:
    used = [(worker, 0.0, {"memory": 900_000_000}) for worker in (0, 1)]
    sizes = {"memory_limit": 1_000_000_000, "memory_pause": 800_000_000}
    plan = Plan(filled(["load"], 0.5, count=4), used=used, memory_sizes=[sizes, {}])
    analyser = plan.write(tmp_path / "traces")
    page = open_page(analyser.report(tmp_path / "some.html"))
    assert page.texts("#charts span.limit") == [
        "limit of some workers: 1 GB",
        "some workers pause: 800 MB",
    ]


def test_outliers_are_named_where_only_some_fit(open_page: Opener, tmp_path: Path) -> None:
    percent = {worker: 50.0 + worker / 100 for worker in range(20)} | {3: 99.0, 11: 5.0}
    used = [(worker, at, {"cpu": value}) for worker, value in percent.items() for at in (0.0, 1.0)]
    plan = Plan(filled(["load"], 0.5, count=4), workers=20, threads=1, used=used)
    page = open_page(plan.write(tmp_path / "traces").report(tmp_path / "outliers.html"))
    shown = [text.strip() for text in page.texts("#charts .chart >> nth=0 >> output >> span")]
    assert shown[:3] == ["one core: 100 %", "worker-node1-3", "worker-node1-11"]
    assert shown[-1] == "13 others are closer to the median"


def test_who_held_memory_at_the_peak_is_a_click_away(open_page: Opener, tmp_path: Path) -> None:
    megabyte = 1_000_000
    plan = Plan(
        tasks=[
            Task("load-1", 0, 0.0, 1.0, size=300 * megabyte, released=6.0, wanted=False),
            Task("clean-1", 1, 2.0, 4.0, size=100 * megabyte, released=5.0, wanted=False),
            Task("sum-1", 0, 7.0, 8.0, size=8, wanted=True),
        ],
        used=[(0, 4.0, {"memory": 500 * megabyte})],
        releases=True,
    )
    page = open_page(plan.write(tmp_path / "traces").report(tmp_path / "held.html"))
    chart = page.tab.locator("#charts .chart:has([aria-label^='Results by function'])")
    label = chart.locator("canvas").get_attribute("aria-label")
    assert label == "Results by function over time, at most 400 MB"
    # The largest first; of eight bytes nothing could be seen.
    names = [text.strip() for text in chart.locator("output > span").all_text_contents()]
    assert names == ["load", "clean", "other functions"]
    chart.scroll_into_view_if_needed()
    box = chart.locator("canvas").bounding_box()
    width = box["width"] - GUTTER
    page.tab.mouse.move(box["x"] + GUTTER + 4.5 / 8 * width, box["y"] + 30)
    page.until(lambda: chart.locator("output b").all_text_contents() == ["300 MB", "100 MB", "0 B"])
    page.tab.mouse.move(box["x"] + GUTTER + 5.5 / 8 * width, box["y"] + 30)
    page.until(lambda: chart.locator("output b").all_text_contents() == ["300 MB", "0 B", "0 B"])
    chart.get_by_role("button", name="Peak 400 MB at 4 s. Show what held memory").click()
    title = page.tab.locator("#memory-peak-table-title")
    page.until(lambda: 0 <= title.bounding_box()["y"] < page.tab.evaluate("innerHeight"))
    table = page.text("#memory-peak-table")
    assert table.index("load") < table.index("clean")
