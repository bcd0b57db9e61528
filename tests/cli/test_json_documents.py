"""JSON documents of commands have versioned schemas, and lead from one to the next."""

import copy
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import new_client, wait_for
from distributed import Event
from jsonschema import Draft202012Validator
from shell import invoke, shell
from traces import Plan, Plugin, T, filled, row

from dasfprof.cli.main import cli
from dasfprof.report.documents import SCHEMAS, VERSIONS, read_schema
from dasfprof.schema.under_way import SCHEDULER_STATE


def asked(*args: Any, exit_code: int = 0) -> dict[str, Any]:
    """Run a command in this process, and return its document."""
    done = invoke(*args)
    assert done.exit_code == exit_code, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


#: Commands whose documents are tested here. `test_try.py` and `test_tune.py` test the others.
COMMANDS = sorted(VERSIONS.keys() - {"try", "tune"})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with two runs, the second of which takes twice as long."""
    place = tmp_path_factory.mktemp("runs")
    for number, seconds in enumerate((1.0, 2.0)):
        tasks = filled(["load"], 0.1) + filled(["fit"], seconds, since=0.4)
        Plan(tasks).write_files(place / str(number))
    return place


@pytest.fixture(scope="module")
def documents(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return a document of each command; that of a live cluster has a task in progress."""
    counted = tmp_path_factory.mktemp("counted")
    worker = {"worker": "tcp://10.0.0.1:4000", "name": "0", "status": "running", "threads": 2}
    totals = {"tasks": {"fit": {"waiting": 2}}, "finished": {"fit": [3, 1, 6.0]}}
    state = row(SCHEDULER_STATE, timestamp=T, workers=[worker], **totals)
    Plugin(counted, "SchedulerPlugin").write((SCHEDULER_STATE, [state]))
    script = counted / "script.py"
    script.write_text("import dask\ndask.delayed(abs)(-1).compute()\n")
    done = shell("dasfprof", "estimate", "--json", script, cwd=counted)
    pair = (runs / "0", runs / "1")
    told = {
        "estimate": json.loads(done.stdout),
        "compare": asked("compare", "--json", "--fail-if-slower", "900%", *pair, exit_code=4),
        "watch": asked("watch", "--once", "--json", counted),
        "history": asked("history", "--json", runs),
        **{command: asked(command, "--json", runs / "0") for command in ("analyse", "info")},
    }
    with new_client(n_workers=1, processes=False, protocol="tcp", host="127.0.0.1") as client:
        until = Event("go", client=client)
        future = client.submit(wait_for, "go")
        told["stuck"] = asked("stuck", "--json", client.cluster.scheduler_address)
        until.set()
        future.result()
    return told


def _without_each_required(schema: dict[str, Any], document: Any) -> Iterator[Any]:
    """Yield the document without one of the members that a schema requires, at any depth."""
    for name in schema.get("required", ()) if isinstance(document, dict) else ():
        broken = copy.deepcopy(document)
        del broken[name]
        yield broken
    for name, part in schema.get("properties", {}).items():
        if isinstance(document, dict) and name in document:
            for broken in _without_each_required(part, document[name]):
                yield {**document, name: broken}
    if isinstance(document, list) and document and "items" in schema:
        for broken in _without_each_required(schema["items"], document[0]):
            yield [broken, *document[1:]]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_schema_takes_its_document_and_none_that_lacks_something(
    command: str, documents: dict[str, dict[str, Any]]
) -> None:
    schema, document = read_schema(command), documents[command]
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert document["schema"] == f"dasfprof/{command}/{VERSIONS[command]}"
    validator.validate(document)
    broken = list(_without_each_required(schema, document))
    assert len(broken) > 5
    assert [one for one in broken if validator.is_valid(one)] == []


def test_documents_hold_what_schemas_describe_in_detail(
    documents: dict[str, dict[str, Any]],
) -> None:
    details = {"analyse": "findings", "history": "runs", "info": "files", "watch": "functions"}
    assert all(documents[command][part] for command, part in details.items())
    assert documents["stuck"]["state"]["workers"]
    assert documents["compare"]["gate"]["closed"] is False


def test_each_command_with_json_has_one_schema() -> None:
    with_json = {
        name
        for name, command in cli.commands.items()
        if any("--json" in option.opts for option in command.params)
    }
    assert with_json == set(VERSIONS)
    files = {path.stem for path in SCHEMAS.glob("*.json")}
    # Schemas of earlier versions may remain.
    assert {f"{name}-{version}" for name, version in VERSIONS.items()} <= files


def followed(command: str) -> dict[str, Any]:
    program, *args = shlex.split(command)
    assert program == "dasfprof"
    return asked(*args, "--json")


def test_the_overview_leads_to_a_finding_a_function_and_its_rows(runs: Path) -> None:
    overview = asked("analyse", "--json", runs / "0")
    assert overview["next"][0].startswith("dasfprof analyse --finding dominant-function ")
    finding = followed(overview["next"][0])
    assert {row["Rule"] for row in finding["findings"]} == {"dominant-function"}
    assert finding["findings"][0]["Page"].endswith("findings/dominant-function.html")
    function = finding["findings"][0]["Function"]
    leads = [one for one in finding["next"] if "--function" in one]
    questions = [one for one in finding["next"] if " -a " in one]
    assert len(leads) == 1
    assert questions
    assert all(followed(question)["tables"] for question in questions)
    of_function = followed(leads[0])
    assert of_function["tables"]["task_bottleneck"]
    assert {row["Function"] for row in of_function["tables"]["task_bottleneck"]} == {function}
    for step in (overview, finding, of_function):
        Draft202012Validator(read_schema("analyse")).validate(step)


def test_each_step_prints_the_next(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    printed = ["  dasfprof analyse 0"]
    for _ in range(3):
        done = invoke(*shlex.split(printed[0])[1:])
        assert done.exit_code == 0, done.output
        _, _, following = done.stdout.partition("\nNext\n")
        printed = following.splitlines()
        assert printed
    for command in printed:
        done = invoke(*shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
    assert (runs / "rows" / "processed_tasks.csv").is_file()


def test_names_with_quotes_are_quoted_for_a_shell(tmp_path: Path) -> None:
    tasks = filled(["load"], 0.1) + filled(['it\'s "slow"; $(x)'], 1.0, since=0.4)
    Plan(tasks).write_files(tmp_path / "a run")
    overview = asked("analyse", "--json", tmp_path / "a run")
    finding = followed(overview["next"][0])
    (lead,) = [one for one in finding["next"] if "--function" in one]
    of_function = followed(lead)
    assert len(of_function["tables"]["task_bottleneck"]) == 16
    assert followed(of_function["next"][0])["tables"]


def test_a_step_opens_what_the_one_before_it_had_opened(runs: Path) -> None:
    times = ["--between", "1970-01-01 00:00", "2100-01-01 00:00"]
    overview = asked("analyse", "--json", *times, runs / "0")
    assert shlex.split(overview["next"][0])[-4:] == [*times, str(runs / "0")]
    assert followed(overview["next"][0])["findings"]


def test_what_is_not_there_is_named(runs: Path) -> None:
    for options, words in (
        ("--finding io-bound", "no finding 'io-bound'. Findings of this run: dominant-function"),
        ("--function nobody", "belongs to the function 'nobody'. Functions of this run: "),
        ("--finding x -a task", "cannot be used together"),
    ):
        done = invoke("analyse", *options.split(), runs / "0")
        assert done.exit_code == 2
        assert words in " ".join(done.output.split())
