"""``dasfprof compare``: output, JSON, regression gate, and errors for wrong use."""

import json
from functools import partial
from pathlib import Path

import pytest
import yaml
from shell import invoke
from traces.noisy import Noisy

import dasfprof
from dasfprof.cli.main import cli

pytestmark = pytest.mark.whole_program


compare = partial(invoke, "compare", columns=110)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write five runs per side in separate directories; clean takes twice as long after."""
    place = tmp_path_factory.mktemp("sides")
    for number in range(5):
        Noisy().write(place / "before" / str(number), number)
        Noisy(times={"clean": 2.0}).write(place / "after" / str(number), 50 + number)
    return place


def test_the_gate(sides: Path) -> None:
    for limit, code, words in (
        ("10%", 3, "Certain to be slower by more than 10 %"),
        ("80 %", 0, "Not certain to be slower by more than 80 %"),
    ):
        result = compare("--fail-if-slower", limit, sides / "before", sides / "after")
        assert (result.exit_code, words in result.stdout) == (code, True)


def test_the_gate_never_closes_for_one_run_on_a_side(sides: Path) -> None:
    result = compare("--fail-if-slower", "1%", sides / "before" / "0", sides / "after" / "0")
    assert result.exit_code == 4
    assert "With one run per group, this is never certain" in " ".join(result.stdout.split())
    several = compare("--fail-if-slower", "1%", sides / "before", sides / "after" / "0")
    assert several.exit_code == 4
    assert "which is likely but not certain: 5 runs before, 1 after" in several.stdout
    same = compare("--fail-if-slower", "1%", sides / "before", sides / "before")
    assert same.exit_code == 4
    assert "on both sides" in same.stdout


def test_one_json_document(sides: Path) -> None:
    result = compare("--json", "--fail-if-slower", "10%", sides / "before", sides / "after")
    document = json.loads(result.stdout)
    assert result.exit_code == 3
    assert document["verdict"]["kind"] == "slower"
    assert document["gate"]["closed"] is True
    assert [run["Side"] for run in document["runs"]] == ["before"] * 5 + ["after"] * 5
    difference = document["verdict"]["after"] - document["verdict"]["before"]
    for name in ("waterfall", "waterfall_by_step"):
        parts = [row["Difference (s)"] for row in document[name]]
        assert sum(parts) == pytest.approx(difference, abs=1e-9)


def test_a_page_beside_the_tables_or_the_document(sides: Path, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    result = compare("--head", "1", "--html", page, sides / "before", sides / "after")
    assert "Wrote" in result.stdout
    assert page.read_text().startswith("<!doctype html>")
    # The lines of a waterfall sum to the difference of the wall times.
    waterfall = result.stdout.split("along the critical path")[1].split("of all threads")[0]
    lines = [line for line in waterfall.splitlines() if line.startswith(("Computing", "1"))]
    shown = [float(line.split()[-1]) for line in lines]
    again = compare("--json", "--html", page, "--fail-if-slower", "10%", *sorted(sides.iterdir()))
    assert again.exit_code == 0  # `after` comes first by name, so the change is faster
    verdict = json.loads(again.stdout)["verdict"]
    assert verdict["kind"] == "faster"
    assert len(shown) == 2
    assert sum(shown) == pytest.approx(verdict["before"] - verdict["after"], abs=1e-3)
    assert "Wrote" in again.stderr
    page.unlink()
    runs = sides / "before" / "0", "--", sides / "after" / "0"
    last = compare(*runs, "--html", page)  # options come last
    assert (last.exit_code, page.exists()) == (0, True), last.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("a",), "Got 1 sources"),
        (("a", "b", "c"), "separated by --"),
        (("--", "b"), "One side has no runs"),
        (("a", "--"), "One side has no runs"),
        (("a", "--", "b", "--", "c"), "before and after a single --"),
        (("--fail-if-slower", "10", "a", "b"), "'10' is not a percentage"),
        (("--fail-if-slower", "x%", "a", "b"), "'x%' is not a percentage"),
        (("--fail-if-slower", "-1%", "a", "b"), "'-1%' is not a percentage"),
    ],
)
def test_wrong_use(args: tuple[str, ...], words: str) -> None:
    result = compare(*args)
    assert (result.exit_code, words in result.stderr) == (2, True), result.stderr


def test_the_example_workflow_uses_what_there_is() -> None:
    text = (Path(dasfprof.__file__).parent / "analysis" / "comparison" / "CI.md").read_text()
    (workflow,) = (part.split("```")[0] for part in text.split("```yaml")[1:])
    steps = yaml.safe_load(workflow)["jobs"]["compare"]["steps"]
    commands = "\n".join(step.get("run", "") for step in steps)
    for name, option in (("run", "--directory"), ("compare", "--fail-if-slower")):
        assert f"dasfprof {name} {option}" in commands
        assert option in {opt for param in cli.commands[name].params for opt in param.opts}
