"""The report's findings in a real browser: texts and links."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from opened_pages import SUM, OpenedPage, Opener, small_run

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis.ranking import in_order, table_of, with_causes
from dasfprof.analysis.diagnosis.registry import Finding
from dasfprof.report import documents

SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
ESCAPES = "half-\ud800 bell-\x07 turned-\u202e"
#: Findings about the run of ten seconds.
FINDINGS = (
    Finding.of("Sums are slow.", "1.25 s", "Do less.", rule="slow-sums", seconds=2.5, function=SUM),
    Finding.of("A pause.", "1 s", "Do more.", rule="a-time", seconds=1.0, start=3.0, stop=3.5),
    Finding.of("One is slow.", "", "Go.", rule="one-worker", seconds=0.25, worker="worker-node-1"),
    Finding.of(SCRIPT, ESCAPES, SCRIPT, rule="hostile", function=SCRIPT, worker=ESCAPES),
)


class Diagnosed(TraceAnalyser):
    found: Sequence[Finding] = FINDINGS

    def findings(self, least: float = 0.1) -> list[Finding]:
        return in_order(with_causes(self.found), 10.0)


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> Diagnosed:
    return Diagnosed(small_run(tmp_path_factory.mktemp("traces"), run="a <b>run</b>").trace)


@pytest.fixture
def page(open_page: Opener, report: Path) -> OpenedPage:
    return open_page(report)


def found_keys(page: OpenedPage) -> set[str]:
    return set(page.texts("#task-table .rows .row > div:first-child"))


def test_findings_are_told_as_the_table_has_them(page: OpenedPage, analyser: Diagnosed) -> None:
    table = table_of(analyser.findings())
    assert page.tab.locator("#findings a[target]").count() == 0
    items = page.tab.locator("#findings li")
    assert items.count() == len(table) == 4
    for at, row in enumerate(table.to_dict("records")):
        text = str(items.nth(at).text_content())
        assert row["Severity"] in text
        if row["Rule"] != "hostile":
            assert all(row[name] in text for name in ("Finding", "Evidence", "Suggestion"))
    assert page.texts("#findings .stake") == ["2.5 s", "1 s", "250 ms", ""]
    # There is a shape and a word, not only a colour.
    assert [text[0] for text in page.texts("#findings .severity")] == ["▲", "◆", "●", "○"]
    # Less severe findings are collapsed.
    assert page.tab.locator("#finding-2").is_visible()
    assert not page.tab.locator("#finding-3").is_visible()


def test_every_severe_finding_is_seen_and_symptoms_are_folded(
    open_page: Opener, analyser: Diagnosed, tmp_path: Path
) -> None:
    symptom = Finding.of("Work is uneven.", "", "Split it.", rule="load-imbalance", seconds=2.9)
    cause = Finding.of("Nothing was sent.", "", "Submit more.", rule="client-bound", seconds=3.0)
    others = [
        Finding.of(f"Call {n} fails.", "", "Fix it.", rule="retried-tasks", seconds=2.8 - n / 10)
        for n in range(4)
    ]
    told = Diagnosed(analyser.trace)
    told.found = (symptom, *others, cause)
    page = open_page(told.report(tmp_path / "mine.html"))
    sentences = [text.strip() for text in page.texts("#findings .sentence")]
    assert sentences == [cause.text, *(other.text for other in others), symptom.text]
    seen = [page.tab.locator(f"#finding-{n}").is_visible() for n in range(1, 7)]
    assert seen == [True] * 5 + [False]
    page.tab.click(".lesser summary")
    assert "2.9 s" in page.text("#finding-6")


def test_a_finding_leads_to_its_page_once_the_documentation_has_an_address(
    open_page: Opener, analyser: Diagnosed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_address", lambda: "https://example.org/docs/")
    linked = open_page(analyser.report(tmp_path / "mine.html"))
    links = linked.tab.locator("#findings a[target]")
    assert links.count() == 4
    assert links.first.get_attribute("href") == "https://example.org/docs/findings/slow-sums.html"


def test_hostile_findings_are_text(page: OpenedPage) -> None:
    assert page.text("#title") == page.tab.title() == "a <b>run</b>"
    text = page.text("#finding-4")
    assert SCRIPT in text
    assert "half-\\ud800 bell-\\x07 turned-\\u202e" in text
    page.tab.click(".lesser summary")
    page.tab.click("#finding-4 a")
    page.until(lambda: page.tab.locator("#finding-4").get_attribute("aria-current") is not None)
    assert page.tab.evaluate("document.images.length") == 0


def test_a_finding_leads_to_its_function(page: OpenedPage) -> None:
    page.tab.click("#finding-1 a")
    page.until(lambda: page.text("#found") == "2 found")
    # Shortly afterwards, the address describes everything that is shown.
    address = "location.hash.slice(1)"
    page.until(lambda: parse_qs(page.tab.evaluate(address)).get("finding") == ["1"])
    assert page.tab.locator("input[value=flatten]").is_checked()
    assert all(SUM in key for key in found_keys(page))
    assert page.tab.locator("#finding-1").get_attribute("aria-current") is not None
    page.until(lambda: page.tab.evaluate("scrollY") > 0)
    page.tab.click("#show-all")
    page.until(lambda: len(found_keys(page)) == 6)
    assert page.tab.locator(".findings [aria-current]").count() == 0
    page.tab.click("#finding-1 a")
    page.until(lambda: page.text("#found") == "2 found")
    # The address is the same as before, and following it again leads there again.
    page.tab.click("#zoom-out")
    page.tab.click("#finding-1 a")
    page.until(lambda: page.window() == (0.0, 10.0))


def test_a_finding_is_followed_though_the_address_is_written_meanwhile(page: OpenedPage) -> None:
    # The browser reports an address after going there, and another view may come between.
    page.tab.evaluate(
        """() => { document.querySelector("#finding-1 a").click();
        history.replaceState(null, "", "#view=critical"); }"""
    )
    page.until(lambda: page.text("#found") == "2 found")
    assert page.tab.locator("#finding-1").get_attribute("aria-current") is not None


def test_a_finding_leads_to_its_time_by_keyboard_and_back(page: OpenedPage) -> None:
    page.tab.locator("#finding-2 a").focus()
    page.tab.keyboard.press("Enter")
    # A quarter of the half second is added on either side.
    page.until(lambda: page.window() == pytest.approx((2.875, 3.625), abs=0.01))
    assert page.tab.evaluate("document.activeElement.className") == "overlay"
    assert page.painted("overlay") > 100
    # And back to the findings.
    page.until(lambda: "A pause." in page.text("#followed"))
    page.tab.click("#followed button")
    focused = "document.activeElement.closest('li')?.id"
    page.until(lambda: page.tab.evaluate(focused) == "finding-2")
    # With the browser's back button, nothing is marked, and the whole run is shown.
    page.tab.go_back()
    page.until(lambda: page.window() == (0.0, 10.0))
    assert not page.tab.locator("#followed").is_visible()


def test_a_link_to_a_finding_can_be_sent(open_page: Opener, report: Path) -> None:
    page = open_page(report, "#finding=3")
    page.until(lambda: page.text("#found") == "3 found")
    workers = page.texts("#task-table .rows .row > div:nth-child(3)")
    assert set(workers) == {"worker-node-1"}
    assert page.tab.locator("#finding-3").is_visible()


def test_a_run_without_a_fault(open_page: Opener, report: Path, analyser: Diagnosed) -> None:
    sound = Diagnosed(analyser.trace)
    sound.found = ()
    page = open_page(sound.report(report.with_name("sound.html")), "#finding=7")
    assert page.text("#findings").startswith("No known problem was found")
    assert page.tab.locator("#findings a").count() == 0
