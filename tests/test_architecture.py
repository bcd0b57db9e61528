"""Import rules of the package: a floor imports only lower floors, and workers import little."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from mutations import read_mutations

import dasfprof

PACKAGE = Path(dasfprof.__file__).parent

FLOORS = {
    "errors": -2,
    "config": -1,
    "system": -1,
    "text": -1,
    "when_imported": -1,
    "schema": 0,
    "database": 1,
    "recording": 2,
    "analysis": 3,
    "report": 4,
    "handles": 5,
    "preload": 6,  # `dasfprof run` uses it
    "pytest_plugin": 7,  # records and analyses
    "cli": 7,
    "jupyter": 7,
    "__main__": 8,
    "__init__": 8,  # only names, for `dasfprof.X`
}
#: Directories of the analysis, from the lowest to the highest; ``__init__`` has only names.
ROOMS = [
    *("wording", "numeric", "trace", "run", "model", "under_way", "stack_samples", "simulation"),
    *("diagnosis", "tables", "large", "methods", "analyser", "live", "history", "comparison"),
    "__init__",
]
ANALYSIS_ONLY = {"pandas", "networkx", "bokeh", "jinja2", "click", "IPython", "tqdm", "rich"}
GPU_LIBRARIES = {"pynvml", "nvtx", "dask_cuda", "cupy", "rmm"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def imports(path: Path, at_top: bool = False) -> set[str]:
    """Return the names of the modules that a file imports, except those for type checkers."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if at_top and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(parsed(path))
    return found


def part(module: str) -> str:
    """Return the part of the package that contains a module; public names count as handles."""
    return (*module.split("."), "handles")[1]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return [*ast.walk(parsed(path))]


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def own_part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def of_each(paths: list[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Return a test that runs a check on each file, and lists the failing files with reasons."""

    def as_test(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            wrong = {}
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    wrong[relative(path)] = str(error)
            assert not wrong

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return as_test


@of_each(modules())
def test_imports_only_lower_floors(path: Path) -> None:
    own = own_part(path)
    for module in imported_modules(path):
        target = part(module)
        if target != own:
            assert FLOORS[target] < FLOORS[own], f"{own} imports {module}"
            assert not (own in ("analysis", "report") and target == "recording"), module


def test_names_of_the_package_lead_to_handles_and_below() -> None:
    """Dask and IPython look up the other names."""
    public = {
        part(module) for name, module in dasfprof._MODULES.items() if name in dasfprof.__all__
    }
    assert max(FLOORS[each] for each in public) == FLOORS["handles"]
    assert dasfprof._HOOKS.keys() == {"load_ipython_extension", "dask_setup", "dask_teardown"}


def test_what_is_started_counts_as_an_import(tmp_path: Path) -> None:
    path = tmp_path / "starts.py"
    path.write_text(
        'import dasfprof.text\nfrom dasfprof import errors, compare\nNAME = "dasfprof.cli.run"\n'
        'run([python, "-m", "dasfprof", "report"])\nsay("dasfprof")\n'
    )
    started = {"dasfprof.cli.run", "dasfprof.__main__"}
    assert imported_modules(path) == {"dasfprof", "dasfprof.text", "dasfprof.errors", *started}
    assert {part(name) for name in started | {"dasfprof"}} == {"cli", "__main__", "handles"}


@cache
def imported_modules(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, starts with ``-m``, or names.

    Imports for type checkers count. A text that is a module's name is assumed to be an import.
    """
    known = module_names()
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in known else node.module for name in names)
        elif isinstance(node, ast.List | ast.Tuple):
            words = [word.value for word in node.elts if isinstance(word, ast.Constant)]
            if ("-m", "dasfprof") in pairwise(words):
                found.add("dasfprof.__main__")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update({node.value} - {"dasfprof"})
    return found & known.keys()


@cache
def module_names() -> dict[str, Path]:
    names = {}
    for path in modules():
        words = ["dasfprof", *path.relative_to(PACKAGE).with_suffix("").parts]
        names[".".join(words).removesuffix(".__init__")] = path
    return names


@of_each(sorted((PACKAGE / "analysis").rglob("*.py")))
def test_rooms_of_the_analysis_import_only_lower_rooms(path: Path) -> None:
    own = path.relative_to(PACKAGE / "analysis").parts[0].removesuffix(".py")
    for module in imported_modules(path):
        words = module.split(".")
        if words[1] == "analysis" and words[2:] and words[2] != own:
            assert ROOMS.index(words[2]) < ROOMS.index(own), f"{own} imports {module}"


#: Functions that code above `analysis/run` must not call: it uses the attributes of `Run`.
ANSWERED_BY_RUNS = {
    *("NamedWorkers", "clock_offsets", "find_first_arrival", "find_run_end"),
    *("all_task_runs", "finished_slots", "ordered_times", "recorded_times", "status_seconds"),
    *("task_slots", "unfinished_runs", "unlisted_runs", "unseen_runs", "worker_lives"),
}
#: Directories of the analysis that only use runs in normal form.
OF_RUNS = {*ROOMS[ROOMS.index("run") + 1 : ROOMS.index("large")], "comparison"}
#: Modules that may open traces and create runs from them. Windows of large runs combine their
#: facts.
MAKE_RUNS = {"analysis/comparison/runs.py", "analysis/large/extent.py"}


@of_each([path for path in modules() if own_part(path) in ("analysis", "report")])
def test_a_run_in_normal_form_is_asked_for_what_it_knows(path: Path) -> None:
    """Code above `analysis/run` does not join tables of task runs or correct clocks."""
    name = relative(path)
    if name.startswith(("analysis/trace/", "analysis/run/")) or name in MAKE_RUNS:
        return
    room = path.relative_to(PACKAGE).parts[1]
    assert room not in OF_RUNS or "dasfprof.analysis.trace.Trace" not in imports(path)
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ANSWERED_BY_RUNS, f"line {node.lineno}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            begin = ast.unparse(node.right)
            assert not re.search(r"\b(trace|whole|own)\.begin$", begin), f"line {node.lineno}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    left: dict[str, set[str]] = {}
    for name, path in module_names().items():
        # Python imports the parent packages of a module in any case.
        left[name] = {
            used for used in imported_modules(path) if not f"{name}.".startswith(f"{used}.")
        }
    # A module that imports no remaining module, or that none of them imports, is not in a cycle.
    while free := {name for name, used in left.items() if not used & left.keys()}:
        left = {name: used for name, used in left.items() if name not in free}
    while free := left.keys() - set().union(*left.values()):
        left = {name: used for name, used in left.items() if name not in free}
    assert not left, f"import each other: {sorted(left)}"


@of_each(modules())
def test_workers_stay_light(path: Path) -> None:
    if FLOORS.get(own_part(path), -1) <= FLOORS["recording"]:
        roots = {module.split(".")[0] for module in imports(path)}
        assert not roots & ANALYSIS_ONLY


@of_each(modules())
def test_gpu_libraries_are_imported_at_use(path: Path) -> None:
    roots = {module.split(".")[0] for module in imports(path, at_top=True)}
    assert not roots & GPU_LIBRARIES


def test_no_module_is_long_or_tiny() -> None:
    """A module has one subject, and usually 80 to 450 lines of code."""
    lengths = {relative(path): len(path.read_text().splitlines()) for path in modules()}
    assert {name: length for name, length in lengths.items() if length > 600} == {}
    tiny = [name for name, length in lengths.items() if length < 30]
    assert [name for name in tiny if not name.endswith("__.py")] == []


def test_no_two_classes_have_the_same_name() -> None:
    names = [
        node.name for path in modules() for node in nodes_of(path) if isinstance(node, ast.ClassDef)
    ]
    assert sorted(names) == sorted(set(names))


#: Attributes, and prefixes of texts, that exist only on some systems.
OF_SOME_SYSTEMS = {"platform", "setpriority", "pthread_getcpuclockid", "RUSAGE_THREAD"}


@of_each([path for path in modules() if path.stem != "system"])
def test_names_of_some_systems_stand_in_one_module(path: Path) -> None:
    """Only `dasfprof.system` uses paths below /proc, `sys.platform` and the module `resource`."""
    nodes = nodes_of(path)
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]
    assert [text for text in texts if text.startswith(("/proc", "/sys/"))] == []
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert not OF_SOME_SYSTEMS & attributes
    assert not {"resource", "fcntl", "grp"} & imports(path)


#: Directories whose docstrings are checked against the rules for docstrings.
IN_PLAIN_WORDS = {
    *("analysis", "cli", "config", "database", "errors", "jupyter", "preload", "recording"),
    *("report", "schema", "system", "text"),
}


def test_docstrings_open_with_what_a_function_does() -> None:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in modules():
        if own_part(path) in IN_PLAIN_WORDS:
            for node in nodes_of(path):
                first = isinstance(node, documented) and (ast.get_docstring(node) or "").split(" ")
                assert not first or first[0] not in ("Give", "Gives", "Tell", "Tells"), path


#: What of Dask may be imported anywhere: what its documentation describes, and `dumps`, which
#: a plugin for future workers has to be pickled by.
_PUBLIC_BY_MODULE = {
    "dask": "array config dataframe delayed optimization sizeof system utils",
    "dask.optimization": "cull",
    "dask.sizeof": "sizeof",
    "dask.system": "cpu_count",
    "dask.utils": "funcname key_split parse_bytes parse_timedelta",
    "distributed": "Client NannyPlugin Future LocalCluster Scheduler Security Worker as_completed "
    "default_client get_worker rpc wait comm protocol",
    "distributed.comm": "CommClosedError get_address_host_port",
    "distributed.deploy.cluster": "Cluster",
    "distributed.diagnostics.plugin": "SchedulerPlugin WorkerPlugin",
    "distributed.protocol": "pickle",
    "distributed.protocol.pickle": "dumps",
}
PUBLIC_DASK = {
    *_PUBLIC_BY_MODULE,
    *(f"{module}.{name}" for module, names in _PUBLIC_BY_MODULE.items() for name in names.split()),
}
INTERNALS = "recording/dask_internals/"
#: Of the private names, words that our own code, zict or `ast` use for things of their own. The
#: hook of task runs reads `scheduler_delay`, also a column's name, of what `with_correction` gives.
ORDINARY_WORDS = {
    *("start_time", "key", "fast", "rewrite", "optimize", "order", "Array", "Expr", "process"),
    *("scheduler_delay", "sync", "send", "get_data", "loads"),
}


def private_names_in(path: Path, private: set[str]) -> set[str]:
    """Return the private names that a file reads as attributes or contains as texts for `getattr`.

    Names of ``self`` do not count.
    """
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and node.attr in private:
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value} & private
    return found


@of_each(modules())
def test_private_names_of_dask_stand_in_one_place(path: Path) -> None:
    """Code outside `dask_internals` does not import or look up private names of Dask."""
    from dasfprof.recording.dask_internals.names import NAMES

    used = {name for name in imports(path) if name.split(".")[0] in ("dask", "distributed")}
    if relative(path).startswith(INTERNALS):
        # A module may be imported, but no class in it: the import would fail if Dask removed the
        # class.
        assert used <= PUBLIC_DASK | {"distributed.worker"}
        return
    assert used <= PUBLIC_DASK
    private = {re.split("[:.]", path)[-1] for one in NAMES for path in one.paths}
    assert private_names_in(path, private - ORDINARY_WORDS) == set()


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules, sep='\\n')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


_DASK = {"dask", "distributed"}
_COMMANDS = "from dasfprof.cli.main import cli; "
_HELP = "from click.testing import CliRunner; CliRunner().invoke(cli, ['--help'])"


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import dasfprof", {*ANALYSIS_ONLY, *GPU_LIBRARIES, *_DASK, "numpy", "msgpack"}),
        (f"{_COMMANDS}list(cli.commands.values())", {*_DASK, "numpy", "pandas", "rich"}),
        (_COMMANDS + _HELP, {*_DASK, "numpy", "pandas", "networkx", "msgpack", "dasfprof.report"}),
        (
            "import dasfprof; dasfprof.TraceAnalyser",
            {"dask", "networkx", "dasfprof.analysis.diagnosis"},
        ),
        ("import dasfprof.handles.trial.trial_run", _DASK),
        # It is imported as Dask is, which `import distributed` does half way.
        ("import dasfprof.recording.dask_internals.local_schedulers", {"distributed"}),
        ("import dasfprof.pytest_plugin", {*_DASK, "pandas", "numpy"}),
    ],
)
def test_what_an_import_does_not_load(statement: str, absent: set[str]) -> None:
    assert not loaded_by(statement) & absent


def test_recording_loads_nothing_heavy_beyond_distributed() -> None:
    plugins = "dasfprof.recording.plugins"
    statement = f"import {plugins}.scheduler, {plugins}.worker_profiler"
    recording = loaded_by(statement) - loaded_by("import distributed")
    assert not recording & {*ANALYSIS_ONLY, *GPU_LIBRARIES}


def test_the_list_of_commands_is_that_of_their_modules() -> None:
    from dasfprof.cli import main

    for name, (module, sentence) in main._COMMANDS.items():
        about = inspect.getdoc(main.cli.commands[name].callback) or ""
        assert module == main.cli.commands[name].callback.__module__
        assert " ".join(about.partition("\n\n")[0].split()) == sentence


def test_each_mutation_can_be_planted() -> None:
    sources = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    for mutation in read_mutations():
        assert sum(source.count(mutation.old) for source in sources) == 1, mutation.name
        assert all((Path(__file__).parent / test).exists() for test in mutation.tests.split())


def test_public_names_exist_and_are_documented() -> None:
    for name in dasfprof.__all__:
        value = getattr(dasfprof, name)
        assert name == "__version__" or value.__doc__, name
    assert dir(dasfprof) == dasfprof.__all__
    with pytest.raises(AttributeError, match="no_such_name"):
        dasfprof.no_such_name  # noqa: B018
