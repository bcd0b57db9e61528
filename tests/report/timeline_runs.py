"""Helpers for tests of the timeline: sums of an area, heights of tracks, and tooltips."""

from typing import Any

from opened_pages import GUTTER, RULER, OpenedPage

#: Height of a track if there is enough space.
LANE = 26
#: Window size that shows the whole page, because a wheel event after scrolling would scroll it.
TALL = {"width": 1280, "height": 2000}


def sums_of(page: OpenedPage, table: str) -> dict[str, list[str]]:
    """Return the cells of an area's table of sums, without the header, by the first cell."""
    rows = page.tab.locator(f"#{table} tr").all()[1:]
    return {
        str(row.locator("th").text_content()): row.locator("td").all_text_contents() for row in rows
    }


def hovered(page: OpenedPage, share: float, y: float) -> list[str]:
    """Return the lines of the tooltip at a fraction of the shown time, and a height."""
    page.tab.locator("#timeline").scroll_into_view_if_needed()
    page.tab.mouse.move(*page.at(-0.05, 5))
    page.tab.mouse.move(*page.at(share, RULER + y))
    page.until(lambda: page.tab.locator("#timeline .tip").is_visible())
    return page.texts("#timeline .tip > *")


def colours_at(
    page: OpenedPage,
    share: float,
    y: float,
    wide: int = 1,
    high: int = 1,
    canvas: str = "#timeline .picture",
) -> list[str]:
    """Return the colours around a share of the time shown, `high` pixels from a canvas's `y`."""
    box = page.tab.locator(canvas).first.bounding_box()
    x = GUTTER + share * (box["width"] - GUTTER)
    return page.colours(canvas, round(x) - wide // 2, y, wide, high)


def colour_of(entry: Any) -> str:
    swatch = entry.locator("i").first
    return str(swatch.evaluate("(one) => getComputedStyle(one).backgroundColor"))
