"""Charts of the report name their limits and their outliers, in a real browser."""

from pathlib import Path

from opened_pages import GUTTER, Opener
from traces import Plan, Task, filled

MB = 1_000_000
SIZES = {"memory_limit": 1000 * MB, "memory_target": 600 * MB}
SIZES |= {"memory_spill": 700 * MB, "memory_pause": 800 * MB}


def test_limits_are_those_of_the_workers(open_page: Opener, tmp_path: Path) -> None:
    used = [(0, at, {"cpu": 12.0, "memory": 750 * MB}) for at in (0.0, 1.0)]
    held = [(0, at, {"size": 500 * MB, "state": "running"}) for at in (0.0, 1.0)]
    plan = Plan(filled(["load"], 0.5, count=4), used=used, held=held, memory_sizes=[SIZES, SIZES])
    analyser = plan.write(tmp_path / "traces")
    page = open_page(analyser.report(tmp_path / "limits.html"))
    workers = analyser.trace.workers.query("kind == 'worker'")
    assert {name: set(workers[name]) for name in SIZES} == {
        name: {size} for name, size in SIZES.items()
    }
    charts = page.tab.locator("#charts .chart").all()
    titles = [chart.locator("canvas").get_attribute("aria-label") for chart in charts]
    limits = [chart.locator("span.limit").all_text_contents() for chart in charts]
    shown = {title.split(" over ")[0]: limit for title, limit in zip(titles, limits, strict=True)}
    # A percentage has its limit line even if the values are low.
    assert shown["CPU of workers"] == ["one core: 100 %"]
    spills = "a worker spills to disk"
    pauses = ["a worker's limit: 1 GB", "a worker pauses: 800 MB"]
    assert shown["Memory of workers"] == [*pauses, f"{spills}: 700 MB"]
    assert shown["Results held"] == [f"{spills}: 600 MB"]
    # Names are above the curves, not on them.
    for chart in charts:
        name, curve = (chart.locator(part).bounding_box() for part in ("output", "canvas"))
        assert name["y"] + name["height"] <= curve["y"] + 0.5


def test_outliers_are_named_where_only_some_fit(open_page: Opener, tmp_path: Path) -> None:
    percent = {worker: 50.0 + worker / 100 for worker in range(20)} | {3: 99.0, 11: 5.0}
    used = [(worker, at, {"cpu": value}) for worker, value in percent.items() for at in (0.0, 1.0)]
    plan = Plan(filled(["load"], 0.5, count=4), workers=20, threads=1, used=used)
    page = open_page(plan.write(tmp_path / "traces").report(tmp_path / "outliers.html"))
    shown = [text.strip() for text in page.texts("#charts .chart >> nth=0 >> output >> span")]
    assert shown[:3] == ["one core: 100 %", "worker-node1-3", "worker-node1-11"]
    assert shown[-1] == "13 others are closer to the median"


def test_who_held_memory_at_the_peak_is_a_click_away(open_page: Opener, tmp_path: Path) -> None:
    tasks = [
        Task("load-1", 0, 0.0, 1.0, size=300 * MB, released=6.0, wanted=False),
        Task("clean-1", 1, 2.0, 4.0, size=100 * MB, released=5.0, wanted=False),
        Task("sum-1", 0, 7.0, 8.0, size=8, wanted=True),
    ]
    plan = Plan(tasks, used=[(0, 4.0, {"memory": 500 * MB})], releases=True)
    page = open_page(plan.write(tmp_path / "traces").report(tmp_path / "held.html"))
    chart = page.tab.locator("#charts .chart:has([aria-label^='Results by function'])")
    label = chart.locator("canvas").get_attribute("aria-label")
    assert label == "Results by function over time, at most 400 MB"
    # The largest first. Eight bytes would not be visible.
    names = [text.strip() for text in chart.locator("output > span").all_text_contents()]
    assert names == ["load", "clean", "other functions"]
    chart.scroll_into_view_if_needed()
    box, shown = chart.locator("canvas").bounding_box(), chart.locator("output b")
    for time, sizes in ((4.5, ["300 MB", "100 MB", "0 B"]), (5.5, ["300 MB", "0 B", "0 B"])):
        x = box["x"] + GUTTER + time / 8 * (box["width"] - GUTTER)
        page.tab.mouse.move(x, box["y"] + 30)
        page.until(lambda sizes=sizes: shown.all_text_contents() == sizes)
    chart.get_by_role("button", name="Peak 400 MB at 4 s. Show what held memory").click()
    title = page.tab.locator("#memory-peak-table-title")
    page.until(lambda: 0 <= title.bounding_box()["y"] < page.tab.evaluate("innerHeight"))
    table = page.text("#memory-peak-table")
    assert table.index("load") < table.index("clean")
