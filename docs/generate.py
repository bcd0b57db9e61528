"""Generates the pages about what the code declares, so that nothing is written twice.

`write` makes ``reference/`` (analyses, options, columns, documents next to the code), ``gallery/``
(copies of the notebooks) and ``files/`` (``llms.txt``, the schemas of ``--json``), which git
ignores. `complete` adds to the pages of findings what their rules declare, and makes links to files
of the repository lead to pages of the site.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from dasfprof.analysis.diagnosis.ranking import FAILED, RULES
from dasfprof.analysis.tables import questions
from dasfprof.cli.main import cli
from dasfprof.config.options import RECORDING, SETTINGS
from dasfprof.schema import KINDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Directories that each build writes again.
GENERATED = ("reference", "gallery", "files")
#: Documents that are stored next to the code that they describe, by the name of their page.
BESIDE_THE_CODE = {
    "format": "dasfprof/database/FORMAT.md",
    "parquet": "dasfprof/report/formats/PARQUET.md",
    "disks": "dasfprof/recording/shipping/CLUSTERS.md",
    "gate": "dasfprof/analysis/comparison/CI.md",
    "security": ".github/SECURITY.md",
    "changelog": "CHANGELOG.md",
}
_FINDINGS = "<!-- findings -->"
_LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


def write(docs: Path) -> None:
    """Write all pages and files that are made of declarations."""
    for name in GENERATED:
        shutil.rmtree(docs / name, ignore_errors=True)
        (docs / name).mkdir()
    pages = {
        "commands": _commands(),
        "questions": _questions(),
        "configuration": _configuration(),
        "columns": _columns(),
        **{name: _document(ROOT / path) for name, path in BESIDE_THE_CODE.items()},
    }
    for name, text in pages.items():
        (docs / "reference" / f"{name}.md").write_text(text, encoding="utf-8")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        shutil.copy(path, docs / "gallery")
    for path in sorted((ROOT / "dasfprof/report/schemas").glob("*.json")):
        (docs / "files/schemas").mkdir(exist_ok=True)
        shutil.copy(path, docs / "files/schemas")
    shutil.copy(ROOT / "notebooks/report.png", docs / "gallery")
    (docs / "files/llms.txt").write_text(llms(docs), encoding="utf-8")


# --- Links: pages link to files of the repository, so that they work in a clone ------------------


def in_site(page: str, text: str) -> str:
    """Return a page's text with its links to files of the repository as links within the site."""
    folder = (DOCS / page).parent

    def linked(link: re.Match[str]) -> str:
        target = _in_site((folder / link[1]).resolve())
        return link[0] if target is None else f"]({os.path.relpath(DOCS / target, folder)})"

    return _LINK.sub(linked, text)


def _in_site(path: Path) -> str | None:
    """Return where the site has a file of the repository, or None if it has no copy of it."""
    for name, document in BESIDE_THE_CODE.items():
        if path == ROOT / document:
            return f"reference/{name}.md"
    copies = {ROOT / "notebooks": "gallery", ROOT / "dasfprof/report/schemas": "files/schemas"}
    folder = copies.get(path.parent)
    return None if folder is None else f"{folder}/{path.name}"


# --- Findings -------------------------------------------------------------------------------------


def complete(_app: object, page: str, source: list[str]) -> None:
    """Complete a page's source by what the rules declare; Sphinx's event ``source-read``."""
    source[0] = in_site(page, source[0])
    if page == "findings":
        source[0] = source[0].replace(_FINDINGS, "\n".join(_all_findings()))
    elif page.startswith("findings/"):
        slug = page.removeprefix("findings/")
        title, rest = source[0].split("\n", 1)
        source[0] = "\n".join([title, "", f"*{_found_by(slug)}*", rest, *_relations(slug)])


def _found_by(slug: str) -> str:
    """Return what a rule finds, by its docstring: ``Find that a run ...`` less the verb."""
    if slug == FAILED:
        return "A rule of the diagnosis failed itself."
    first = (inspect.getdoc(RULES[slug].find) or "").partition("\n")[0]
    found = first.removeprefix("Find ").removeprefix("that ")
    return found[:1].upper() + found[1:]


def _relations(slug: str) -> Iterator[str]:
    """Yield which findings may come with a finding, and the file of its rule."""
    caused = {*RULES[slug].causes, *RULES[slug].explains} if slug in RULES else set()
    causes = {name for name, rule in RULES.items() if slug in (*rule.causes, *rule.explains)}
    yield "\n## Related findings\n"
    if caused:
        yield f"It can cause {_links(caused)}. These are then listed below it, as `low`.\n"
    if causes:
        yield f"It can be caused by {_links(causes)}.\n"
    if not caused and not causes:
        yield "It is not known to cause another finding, or to be caused by one.\n"
    if slug in RULES:
        module = RULES[slug].find.__module__
        yield f"The rule is in `{module.replace('.', '/')}.py`.\n"


def _links(slugs: Iterable[str]) -> str:
    return ", ".join(f"[{slug}]({slug}.md)" for slug in sorted(slugs))


def _all_findings() -> Iterator[str]:
    """List the rules by module, in the order in which they are asked."""
    module = ""
    for slug, rule in RULES.items():
        if rule.find.__module__ != module:
            module = rule.find.__module__
            about = (sys.modules[module].__doc__ or "").partition("\n")[0]
            about = about.removeprefix("Rules about ").removeprefix("The rule about ")
            about = re.split(r"[:,.] ?", about, maxsplit=1)[0]
            yield f"\n## {about[:1].upper()}{about[1:]}\n"
        yield f"- [{slug}](findings/{slug}.md): {_lower(_found_by(slug))}"
    yield "\n## When a rule fails\n"
    yield f"- [{FAILED}](findings/{FAILED}.md): {_lower(_found_by(FAILED))}"


def _lower(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


# --- Commands -------------------------------------------------------------------------------------


def _commands() -> str:
    whole = click.Context(cli, info_name="dasfprof")
    lines = [
        "# Commands",
        "",
        "You can also run each command through Dask: `dask dasfprof analyse traces/`.",
        "",
        f"{cli.epilog}",
    ]
    for name, command in cli.commands.items():
        context = click.Context(command, parent=whole, info_name=name)
        usage = command.get_usage(context).removeprefix("Usage: ")
        lines += ["", f"## {name}", "", "```text", usage, "```", "", *_help(command.help or "")]
        options = (each for each in command.params if isinstance(each, click.Option))
        records = (option.get_help_record(context) for option in options)
        lines += (f"`{record[0]}`\n: {_prose(record[1])}\n" for record in records if record)
    return "\n".join(lines) + "\n"


def _help(text: str) -> Iterator[str]:
    """Yield a command's help; what it shows line by line, behind ``\\b``, is code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        head, marked, rest = paragraph.partition("\b\n")
        if not marked:
            yield f"{_prose(head)}\n"
            continue
        title, *shown = rest.splitlines()
        yield "\n".join([title, "", "```sh", *(line.strip() for line in shown), "```", ""])


def _prose(text: str) -> str:
    """Write a text of the shell as Markdown: options and placeholders as code."""
    text = " ".join(text.split())
    return re.sub(r"(?<![\w`-])(--?[a-zA-Z][\w-]*)(?![\w`])", r"`\1`", _escaped(text))


def _escaped(text: str) -> str:
    parts = text.split("`")
    parts[::2] = [re.sub(r"([<*\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


# --- Analyses, options, columns ------------------------------------------------------------------


def _questions() -> str:
    lines = [
        "# Analyses",
        "",
        "Each analysis is a method of `TraceAnalyser` that returns a DataFrame. In the shell, "
        "`dasfprof analyse -a NAME SOURCE` prints it. Pass arguments as "
        "`-a 'NAME(argument=value)'`, and write CSV files with `-o DIRECTORY`.",
    ]
    for group, about in questions.GROUPS.items():
        lines += ["", f"## {group.capitalize()}", "", _code(about)]
        for one in questions.all():
            if one.group == group:
                lines += ["", f"### {one.name}", ""]
                if one.short:
                    lines += [f"Short form in the shell: `-a {one.short}`.", ""]
                lines += ["```{eval-rst}", f".. automethod:: dasfprof.TraceAnalyser.{one.name}"]
                lines += ["   :no-index:", "```"]
    return "\n".join(lines) + "\n"


def _configuration() -> str:
    lines = [
        "# Options and configuration",
        "",
        "You can set an option as a keyword (`register_default_profiler`, `profile`), as a flag "
        "(`dasfprof run`, `%%dasfprof`), or in Dask's configuration under `dasfprof.`. Keywords "
        "and flags override the configuration, and the configuration overrides the default. In the "
        "environment, use `DASK_DASFPROF__NAME`, such as "
        "`DASK_DASFPROF__DIRECTORY=/scratch/traces`.",
        "",
        "## Recording",
        "",
    ]
    lines += (_option(option) for option in RECORDING.values())
    lines += ["", "## Analysis (configuration only)", ""]
    lines += (_option(option) for name, option in SETTINGS.items() if name not in RECORDING)
    return "\n".join(lines) + "\n"


def _option(option: Any) -> str:
    default = "none" if option.default is None else f"`{option.default}`"
    config = f"Config `dasfprof.{option.config_name}`, default {default}."
    return f"`{option.name}`\n: {_code(option.meaning)}\n\n  {config}\n"


def _columns() -> str:
    lines = [
        "# What is recorded",
        "",
        "This page lists every kind of event and its columns, as `dasfprof/schema/` declares them. "
        "The tables of `Trace` have the same columns. [](parquet.md) describes the exported files. "
        "Times are Unix seconds of the recording host's clock.",
    ]
    for kind in KINDS.values():
        lines += ["", f"## {kind.name}", "", kind.about, ""]
        lines += [f"Recorded by `{kind.recorder}`.", "", "| column | kind | what it is |"]
        lines += ["|---|---|---|"]
        lines += (f"| `{c.name}` | {c.kind} | {_cell(c.about)} |" for c in kind.columns)
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Make code of reStructuredText that of Markdown."""
    return text.replace("``", "`")


def _cell(text: str) -> str:
    return _code(text).replace("|", r"\|").replace("<", r"\<")


def _document(path: Path) -> str:
    """Return a document with its links to other files as names, or as pages where there is one."""
    pages = {(ROOT / path).resolve(): name for name, path in BESIDE_THE_CODE.items()}

    def linked(found: re.Match[str]) -> str:
        page = pages.get((path.parent / found[1]).resolve())
        return f"]({page}.md)" if page else "]"

    text = _LINK.sub(linked, path.read_text(encoding="utf-8")).replace("```base64", "```text")
    return re.sub(r"\[([^\]\[]+)\](?![(\[])", _unlinked, text)


def _unlinked(found: re.Match[str]) -> str:
    return found[1] if found[1].endswith((".py", ".yaml", ".md")) else found[0]


# --- For programs that help people ----------------------------------------------------------------

_ABOUT = """\
# dasfprof

> A profiler for Dask. It records what the scheduler and every worker of a run did, and shows where
> the time went, why, and what to change.

- Record a script: `dasfprof run pipeline.py`
- Find out what is wrong with the run, and what to change: `dasfprof analyse --json traces/`
- Find out why a live cluster hangs: `dasfprof stuck --json tcp://scheduler:8786`

Each finding has the name of a rule, which does not change, and a page with that name.
"""
#: Headings of the list, and the pages below them.
_SECTIONS = (
    ("Guide", ("guide", "agents")),
    ("Findings", ("findings",)),
    ("Reference", ("reference",)),
)


def llms(docs: Path) -> str:
    """Return ``llms.txt``: every page with what it is about, for programs that read."""
    lines = [_ABOUT]
    for heading, names in _SECTIONS:
        lines += [f"## {heading}", ""]
        for name in names:
            own = [docs / f"{name}.md", *sorted((docs / name).glob("*.md"))]
            lines += (_listed(docs, path) for path in own if path.is_file())
        lines.append("")
    schemas = sorted((docs / "files/schemas").glob("*.json"))
    lines += ["## Schemas of --json", ""]
    lines += (f"- [{path.stem}](schemas/{path.name})" for path in schemas)
    return "\n".join(lines) + "\n"


def _listed(docs: Path, path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    page = path.relative_to(docs).with_suffix("").as_posix()
    slug = page.removeprefix("findings/")
    known = slug in RULES or slug == FAILED
    about = _found_by(slug) if known else _first_sentence(text)
    return f"- [{title}]({page}.html): {about}"


def _first_sentence(text: str) -> str:
    paragraphs = (part.strip() for part in text.split("\n\n")[1:])
    prose = next(part for part in paragraphs if re.match(r"\w|`(?!``)", part))
    return re.split(r"(?<=\.)\s", " ".join(prose.split()), maxsplit=1)[0].rstrip(":")
