"""Modules of the pages: joined in one scope, all used, and with unique names."""

import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import dasfprof
from dasfprof.report.page.document import STYLES, joined

PAGE = Path(dasfprof.__file__).parent / "report/page"
#: Modules that start a separate script each.
ENTRIES = ("page.js", "comparison/comparison.js", "loader.js", "notebook.js")
#: Name in a declaration, or several names in brackets.
_DECLARED = re.compile(
    r"^(?:async function|function|class|const|let) (?:(\w+)|\[([^\]]*)\]|\{([^}]*)\})", re.MULTILINE
)


def modules_of(entry: str) -> list[str]:
    return re.findall(r"^// (\S+\.js)$", joined(entry), re.MULTILINE)


@pytest.mark.parametrize("entry", ENTRIES)
def test_each_name_is_declared_once_and_nothing_is_left_of_modules(entry: str) -> None:
    found = _DECLARED.findall(joined(entry))
    names = [name.strip() for groups in found for name in ",".join(filter(None, groups)).split(",")]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert not re.search(r"^(import|export)\b", joined(entry), re.MULTILINE)


def test_each_name_that_is_exported_is_imported() -> None:
    paths = [*PAGE.parent.rglob("*.js"), *(Path(__file__).parents[1] / "page").glob("*.js")]
    wanted = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    imported = {
        name.strip()
        for names in re.findall(r"^import \{([^}]*)\}", wanted, re.MULTILINE)
        for name in names.split(",")
    }
    lone = re.findall(r"^export (?:async )?(?:function|class|const) (\w+)", wanted, re.MULTILINE)
    namespaces = set(re.findall(r"\bformat\.(\w+)", wanted))
    assert [name for name in lone if name not in imported | namespaces] == []


def test_no_module_imports_itself_in_a_circle() -> None:
    rests_on = {
        path.relative_to(PAGE).as_posix(): [
            (path.parent / name).resolve().relative_to(PAGE.resolve()).as_posix()
            for name in re.findall(r'^import \{[^}]*\} from "([^"]+)";', path.read_text(), re.M)
        ]
        for path in PAGE.rglob("*.js")
    }
    assert list(TopologicalSorter(rests_on).static_order())


def test_each_file_is_in_a_page_and_behind_what_it_rests_on() -> None:
    assert sorted(STYLES) == sorted(p.relative_to(PAGE).as_posix() for p in PAGE.rglob("*.css"))
    listed = {path.relative_to(PAGE).as_posix() for path in PAGE.rglob("*.js")}
    assert {name for entry in ENTRIES for name in modules_of(entry)} == listed
    for entry in ENTRIES:
        assert modules_of(entry)[-1] == entry
    order = modules_of("page.js")
    assert order.index("numbers.js") < order.index("flame/graph.js") < order.index("page.js")
