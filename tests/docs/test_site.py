"""The documentation: each rule has a page, generated pages match declarations, and code runs."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from clusters import new_client

import dasfprof
from dasfprof.analysis.diagnosis.ranking import FAILED, RULES
from dasfprof.analysis.tables import questions
from dasfprof.cli.main import cli
from dasfprof.config.options import SETTINGS
from dasfprof.report import documents
from dasfprof.report.documents import finding_page
from dasfprof.schema import KINDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import generate  # noqa: E402  # it is next to the pages

HEADINGS = ["What it means", "How to confirm it", "What to do", "When it does not apply"]
#: Hand-written pages. The others are generated from declarations.
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if not {"_build", *generate.GENERATED} & set(path.relative_to(DOCS).parts)
)
GUIDE = [path for path in PAGES if path.parent.name == "guide"]


def blocks(path: Path, language: str, fence: str = "") -> list[str]:
    """Return the executable code of a page, without that in `{code-block}`."""
    pattern = rf"^```{fence}{language}\n(.*?)^```$"
    return re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def shown(path: Path, language: str) -> list[str]:
    """Return the code of a page that is only shown, because it needs other software."""
    return blocks(path, language, r"\{code-block\} ")


def test_each_rule_has_a_page_of_four_parts() -> None:
    pages = {path.stem: path for path in (DOCS / "findings").glob("*")}
    rules = (*RULES, FAILED)
    assert {f"findings/{name}.html" for name in pages} == {finding_page(rule) for rule in rules}
    for rule in rules:
        text = pages[rule].read_text(encoding="utf-8")
        title, *parts = re.split(r"^##? (.*)$", text, flags=re.MULTILINE)[1:]
        assert (title, parts[1::2]) == (rule, HEADINGS)
        assert all(len(part.split()) >= 6 for part in parts[2::2]), rule


def test_findings_name_their_pages_once_the_package_names_its_documentation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Message()
    monkeypatch.setattr(documents, "metadata", lambda _: told)
    for address, page in (
        ("Issues, https://example.org/issues", None),
        ("Documentation, https://x.org/docs/", "https://x.org/docs/findings/io-bound.html"),
    ):
        told["Project-URL"] = address
        documents._address.cache_clear()
        assert documents.finding_url("io-bound") == page
    documents._address.cache_clear()


def test_pages_of_findings_name_methods_that_there_are() -> None:
    named = {
        (path.stem, name)
        for path in (DOCS / "findings").glob("*.md")
        for name in re.findall(r"\banalyser\.(\w+)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 15
    assert [one for one in named if not hasattr(dasfprof.TraceAnalyser, one[1])] == []


def test_a_page_is_completed_by_what_the_rules_declare() -> None:
    source = ["# gil-contention\n\n## What it means\n"]
    generate.complete(None, "findings/gil-contention", source)
    assert "*Threads of one process that compete for the GIL" in source[0]
    assert "It can cause [blocked-tasks](blocked-tasks.md)" in source[0]
    assert "`dasfprof/analysis/diagnosis/cores.py`" in source[0]
    # All findings are listed.
    source = [(DOCS / "findings.md").read_text(encoding="utf-8")]
    generate.complete(None, "findings", source)
    listed = re.findall(r"^- \[([\w-]+)\]\(findings/\1\.md\): \S", source[0], re.MULTILINE)
    assert sorted(listed) == sorted([*RULES, FAILED])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with generated pages, and links to the other files."""
    docs = tmp_path_factory.mktemp("docs")
    for path in DOCS.iterdir():
        if path.name not in {"_build", *generate.GENERATED}:
            (docs / path.name).symlink_to(path)
    generate.write(docs)
    return docs


def test_the_reference_has_all_that_is_declared(site: Path) -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in site.glob("reference/*.md")}
    made = {"commands", "questions", "configuration", "columns"}
    assert set(texts) == {*made, *generate.BESIDE_THE_CODE}
    assert re.findall(r"^## (\w+)$", texts["commands"], re.MULTILINE) == list(cli.commands)
    for command in cli.commands.values():
        options = [option for option in command.params if isinstance(option, click.Option)]
        assert [one for one in options if f"{one.opts[-1]}" not in texts["commands"]] == []
    asked = re.findall(r"^### (\w+)$", texts["questions"], re.MULTILINE)
    assert sorted(asked) == sorted(question.name for question in questions.all())
    options = re.findall(r"^`(\w+)`$", texts["configuration"], re.MULTILINE)
    assert options == list(SETTINGS)
    kinds = re.findall(r"^## (.+)$", texts["columns"], re.MULTILINE)
    assert kinds == [kind.name for kind in KINDS.values()]
    columns = texts["columns"].count("\n| `")
    assert columns == sum(len(kind.columns) for kind in KINDS.values())


def test_llms_txt_names_every_page_once(site: Path) -> None:
    text = (site / "files/llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(([\w/-]+)\.(?:html|json)\)", text)
    pages = [*(f"findings/{rule}" for rule in (*RULES, FAILED)), "agents", "findings", "reference"]
    pages += [f"guide/{path.stem}" for path in GUIDE]
    assert set(pages) <= set(listed)
    assert len(set(listed)) == len(listed)
    assert [line for line in text.splitlines() if "html)" in line and "): " not in line] == []


def test_every_public_name_is_in_the_reference() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\.\. auto(?:function|class):: (\w+)", text))
    assert named == set(dasfprof.__all__) - {"__version__", "DasfprofError"}
    assert "automodule:: dasfprof.errors" in text


def links(text: str) -> list[str]:
    return re.findall(r"\]\((?!https?:|#)([^)\s]+)\)", text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_links_work_in_a_clone_and_in_the_site(path: Path, site: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [link for link in links(text) if not (path.parent / link).exists()] == []
    page = path.relative_to(DOCS).with_suffix("")
    folder = site / page.parent
    # Paths are not resolved, because the directories of the site are links.
    targets = links(generate.in_site(page.as_posix(), text))
    assert [one for one in targets if not os.path.exists(os.path.normpath(folder / one))] == []
    assert re.findall(r"https?://[^\s)`\"']+", text) == [], "no page needs what may not be public"
    for code in shown(path, "python"):
        ast.parse(code)


def commands() -> Iterator[tuple[str, str]]:
    for path in PAGES:
        for block in (*blocks(path, "sh"), *shown(path, "sh")):
            for line in block.splitlines():
                command = line.partition("  #")[0].strip()
                if command.startswith("dasfprof "):
                    yield path.relative_to(DOCS).as_posix(), command


@pytest.mark.parametrize(("page", "command"), list(commands()))
def test_commands_have_the_options_that_pages_give_them(page: str, command: str) -> None:
    _, name, *args = shlex.split(command)
    found = cli.commands[name]
    args = ["SCRIPT" if one == "pipeline.py" else one for one in args]
    try:
        found.make_context(name, args)
    except click.BadParameter as error:
        assert "does not exist" in error.message, page


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return names for the guide's code: a client, a recorded run in ``traces``, its analyser."""
    place = tmp_path_factory.mktemp("guide")
    with new_client(n_workers=2, threads_per_worker=1, processes=False) as client:
        with dasfprof.profile(client, name="guide", directory=place / "traces") as run:
            client.gather(client.map(pow, range(20), [2] * 20))
        yield {"client": client, "dasfprof": dasfprof, "analyser": run.analyser(), "place": place}


@pytest.mark.parametrize("path", GUIDE, ids=lambda path: path.stem)
def test_the_code_and_the_commands_of_the_guide_run(
    path: Path, recorded: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = dict(recorded)
    shutil.copytree(names.pop("place") / "traces", tmp_path / "traces")
    monkeypatch.chdir(tmp_path)
    code = blocks(path, "python")
    assert code
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in code:
            exec(compile(block, str(path), "exec"), names)

    monkeypatch.chdir(recorded["place"])
    for block in blocks(path, "sh"):
        for line in block.splitlines():
            _, *args = shlex.split(line, comments=True)
            # A trace of twenty tasks has no such finding, and other tests run the script.
            if args[0] == "run" or {"--finding", "--function"} & set(args):
                continue
            done = CliRunner().invoke(cli, args, catch_exceptions=False)
            assert done.exit_code == 0, f"{line}\n{done.output}"


def test_the_changelog_has_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert headings[:2] == ["Unreleased", dasfprof.__version__]


def test_the_recipe_asks_for_what_the_package_needs() -> None:
    recipe = (ROOT / ".github/conda-forge/recipe.yaml").read_text(encoding="utf-8")
    told = yaml.safe_load(recipe)
    assert told["context"]["version"] == dasfprof.__version__
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert listed is not None
    needed = dict(re.findall(r'"([a-z]+)>=([\d.]+)"', listed[1]))
    # conda-forge's names of Dask's packages.
    asked = dict(re.findall(r"^    - ([a-z-]+) >=([\d.]+)$", recipe, re.MULTILINE))
    asked["dask"] = asked.pop("dask-core")
    asked["msgpack"] = asked.pop("msgpack-python")
    assert asked.pop("python", None) in (None, "3.10")
    assert asked == needed


@pytest.mark.parametrize(
    ("tag", "words"),
    [("v9.9.9", "it should be v" + dasfprof.__version__), ("0.2", "The tag is 0.2, and")],
)
def test_a_tag_that_is_not_the_version_is_not_released(
    tag: str, words: str, tmp_path: Path
) -> None:
    command = [str(ROOT / ".ci/release"), tag, str(tmp_path / "dist")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert words in done.stdout
    assert not (tmp_path / "dist").exists()


SCRIPT = """
import time

from dask.distributed import Client


def slow(part):
    time.sleep(0.5)
    return part


def quick(part):
    return part


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        client.gather(client.map(slow, range(8)))
        client.gather(client.map(quick, range(8)))
"""


@pytest.mark.whole_program
def test_the_first_page_leads_to_a_finding_on_a_script_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(SCRIPT, encoding="utf-8")

    def run(command: str) -> subprocess.CompletedProcess[str]:
        args = [sys.executable, "-m", *shlex.split(command)]
        options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 600}
        done = subprocess.run(args, check=False, **options)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done

    lines = [line for block in blocks(DOCS / "guide/start.md", "sh") for line in block.splitlines()]
    recorded, analysed, *_ = lines
    assert recorded == "dasfprof run -d traces pipeline.py"
    run(recorded)
    overview = run(f"{analysed} --json")
    document = json.loads(overview.stdout)
    of_slow = [row["Rule"] for row in document["findings"] if row["Function"] == "slow"]
    assert of_slow
    finding = run(f"dasfprof analyse --finding {of_slow[0]} traces").stdout
    assert "dasfprof analyse --function slow traces" in finding
    assert "slow" in run("dasfprof analyse --function slow traces").stdout
    run("dasfprof report traces -o run.html")
    assert (tmp_path / "run.html").stat().st_size > 50_000
