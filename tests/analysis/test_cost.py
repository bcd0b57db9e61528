"""Cost of runs, calculated by hand: all rows add up to the hours of all workers."""

import json
from pathlib import Path
from typing import Any

import dask
import pandas as pd
import pytest
from click.testing import CliRunner
from traces import Plan, Task

from dasfprof import TraceAnalyser
from dasfprof.analysis.history import history
from dasfprof.cli.main import cli
from dasfprof.config.kinds import Price
from dasfprof.config.options import setting
from dasfprof.errors import InvalidArgumentError
from dasfprof.report.run_summary import in_words, summarise

HOUR = 3600.0


def shared(**more: Any) -> Plan:
    """Two clients share two workers with two threads for 3 h; the second joins after an hour.

    Thread-hours: the first worker exists for 3 h, which is 6; the second for 2 h, which is 4. Ann's
    tasks hold a thread for 2 h, and Bob's for 1 h on the second worker. In the last hour, there are
    no tasks.
    """
    tasks = [
        Task("load-0", 0, 0.0, 2 * HOUR, graph="update-graph-0"),
        Task("fit-0", 1, HOUR, 2 * HOUR, arrival=HOUR, graph="update-graph-1"),
    ]
    clients = [f"Client-{name}-{'0' * 8}-0000-0000-0000-{'0' * 12}" for name in ("ann", "bob")]
    used = [(who, at * HOUR, {}) for who in (0, 1) for at in (who, 3)]
    held = [(who, at, {"state": "running"}) for who, at, _ in used]
    times = {"graphs": (0.0, HOUR), "joined": (0.0, HOUR)}
    return Plan(tasks, clients=clients, used=used, held=held, **times, **more)


#: Worker-hours: a thread-hour is half a worker-hour.
EXPECTED = {"ann": 1.0, "bob": 0.5, "(waiting)": 1.5, "(idle)": 2.0}


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return shared().write(tmp_path_factory.mktemp("shared"))


def by_name(table: pd.DataFrame, column: str) -> dict[str, float]:
    return dict(zip(table.iloc[:, 0], table[column].round(6), strict=True))


def test_clients_and_idle_threads_sum_to_the_whole(analyser: TraceAnalyser) -> None:
    table = analyser.cost("client", price="0.5 EUR")
    assert by_name(table, "Worker Hours") == EXPECTED
    assert by_name(table, "Cost") == {name: hours / 2 for name, hours in EXPECTED.items()}
    assert table["Share (%)"].sum() == pytest.approx(100.0)
    assert table.attrs["currency"] == "EUR"
    # Each worker has two threads.
    by_thread = analyser.cost("client", price="0.25/thread")
    assert by_name(by_thread, "Cost") == by_name(table, "Cost")


@pytest.mark.parametrize("by", ["step", "line", "function", "client"])
def test_each_grouping_sums_to_the_whole(by: Any, analyser: TraceAnalyser) -> None:
    table = analyser.cost(by, price=2)
    assert table[["Worker Hours", "Cost"]].sum().tolist() == pytest.approx([5.0, 10.0])
    assert table.iloc[-2:, 0].tolist() == ["(waiting)", "(idle)"]
    if by == "function":
        assert by_name(table, "Cost")["load"] == pytest.approx(2.0)


def test_lines_cost_the_same(analyser: TraceAnalyser) -> None:
    lines = analyser.lines(price="2 EUR")
    assert lines["Cost"].sum() == pytest.approx(10.0)
    assert by_name(lines, "Cost")["(idle)"] == pytest.approx(7.0)


def test_findings_cost_their_part_of_the_run(analyser: TraceAnalyser) -> None:
    findings, table = analyser.diagnose(), analyser.cost("finding", price=6)
    assert len(findings) and table["Rule"].tolist() == findings["Rule"].tolist()
    # There are 5 worker-hours in 3 h, so each second of the run costs 5/3 worker-seconds.
    expected = findings["Seconds at stake (s)"] / 3600 * 5 / 3
    pd.testing.assert_series_equal(table["Worker Hours"], expected, check_names=False)
    pd.testing.assert_series_equal(table["Cost"], expected * 6, check_names=False)


def test_without_a_price_hours_alone(analyser: TraceAnalyser) -> None:
    assert "Cost" not in analyser.cost("client")
    assert "Cost" not in analyser.lines()
    assert summarise(analyser.run)["cost"] is None
    # The setting applies to all machine types.
    with dask.config.set({"dasfprof.price": "2 EUR"}):
        assert analyser.lines()["Cost"].sum() == pytest.approx(10.0)
        facts = summarise(analyser.run)
    assert facts["cost"]["amount"] == pytest.approx(10.0)
    assert facts["cost"]["idle_hours"] == pytest.approx(3.5)
    assert "It cost 10.00 EUR: 5 worker-hours, 70 % of them idle." in in_words(facts)


def test_prices() -> None:
    prices = {
        0.12: Price(0.12),
        "0.12": Price(0.12),
        "0.12 EUR": Price(0.12, "EUR"),
        "0.03 €/core": Price(0.03, "€", True),
        "3/worker": Price(3.0),
        "1e-3 USD/thread": Price(0.001, "USD", True),
    }
    assert {given: setting("price", given) for given in prices} == prices


def test_what_is_no_price(analyser: TraceAnalyser) -> None:
    for given in (-1, "free", "1 EUR/day", float("inf"), True, "1.2.3"):
        with pytest.raises(InvalidArgumentError, match="price"):
            analyser.cost("step", price=given)


def test_history_says_what_runs_cost(tmp_path: Path) -> None:
    for day in (1, 2):
        shared(run=f"daily-{day}", run_uuid=str(day), run_created=float(day)).write_files(tmp_path)
    table = history(tmp_path, price="2 EUR", progress=False)
    for column, value in {"Worker Hours": 5.0, "Cost": 10.0, "Idle (%)": 70.0}.items():
        assert table[column].round(6).tolist() == [value, value]
    # Stored summaries have hours, so that another price does not need the traces.
    again = history(tmp_path, price=1, progress=False)
    assert again["Cost"].round(6).tolist() == [5.0, 5.0]
    assert "Cost" not in history(tmp_path, progress=False)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*arguments: str) -> Any:
    return json.loads(printed(arguments[0], "--json", *arguments[1:]))


def test_commands_take_a_price(tmp_path: Path) -> None:
    shared().write_files(tmp_path)
    place = str(tmp_path)
    assert "10.00 EUR: 5 worker-hours" in printed("info", "--price", "2 EUR", place)
    (run,) = document("info", "--price", "2 EUR", place)["runs"]
    assert run["cost"]["amount"] == pytest.approx(10.0)
    assert document("info", place)["runs"][0]["cost"] is None
    told = document("analyse", "--price", "2", "-a", "cost('client')", place)
    assert told["summary"]["cost"]["amount"] == pytest.approx(10.0)
    (rows,) = told["tables"].values()
    assert sum(row["Cost"] for row in rows) == pytest.approx(10.0)
    (run,) = document("history", "--price", "2", place)["runs"]
    assert run["Cost"] == pytest.approx(10.0)
    assert "Cost" in printed("history", "--price", "2", place)
    refused = CliRunner().invoke(cli, ["info", "--price", "free", place])
    assert refused.exit_code == 2 and "the price of a worker" in refused.output
