"""Whether patches save the potential savings of findings, measured by `dasfprof try --patch`.

``tried_code.py [--time-limit 150] [NAME ...]`` tries the remedies of ten programs, and changes of
six healthy programs that cannot save time. It prints the time that each patch saved, the finding
that it fixes, and the potential savings of this finding.
"""

import argparse
import difflib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

DIRECTORY = Path(__file__).parent
#: Texts that a patch replaces, and their replacements, by program.
REMEDIES: Mapping[str, Mapping[str, str]] = {
    "cases/each_partition": {'if "--remedy" in sys.argv:': "if True:"},
    "cases/index_twice": {'if "--remedy" in sys.argv:': "if True:"},
    "cases/large_results": {
        "sum(len(part) for part in client.gather(client.map(make, range(20))))": (
            "sum(client.gather(client.map(len, client.map(make, range(20)))))"
        )
    },
    "cases/many_gathers": {
        "sum(future.result() for future in futures)": "sum(client.gather(futures))"
    },
    "cases/printed_results": {"from_map(load, range(12))": "from_map(load, range(12)).persist()"},
    "cases/tiny_chunks": {'500 if "--remedy" in sys.argv else 25': "500"},
    "cases/tokenising": {
        "from distributed": "import pickle\n\nfrom distributed",
        "len(table) + number": "len(pickle.loads(table)) + number",
        "print(sum(client.gather([": (
            "table = client.scatter(pickle.dumps(table), broadcast=True)\n"
            "        print(sum(client.gather(["
        ),
    },
    "two_causes/delayed_in_loop": {"sys.argv[1:]": '["together"]'},
    "two_causes/futures_of_items": {"sys.argv[1:]": '["batches"]'},
    "two_causes/kmeans": {"sys.argv[1:]": '["chunks"]'},
}
#: Changes that cannot save time.
NEUTRAL: Mapping[str, Mapping[str, str]] = {
    "healthy/bag": {".map(text)": ".map(text).persist()"},
    "healthy/hdf5": {
        "sum(c.gather(c.map(stats, blocks)))": "c.submit(sum, c.map(stats, blocks)).result()"
    },
    "healthy/map_blocks": {"x.map_blocks(work).mean()": "x.map_blocks(work).persist().mean()"},
    "healthy/rechunk": {"::2]).sum()": "::2]).persist().sum()"},
    "healthy/tasks_100ms": {"c.map(work, range(150))": "[c.submit(work, n) for n in range(150)]"},
    "healthy/tree": {"@delayed\ndef": "@delayed(pure=False)\ndef"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the time that each patch saves, and the potential savings of its finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--time-limit", default="150s")
    options = parser.parse_args(arguments)
    for name, changes in {**REMEDIES, **NEUTRAL}.items():
        if not options.names or Path(name).name in options.names:
            print(f"{name}: {described(tried(name, changes, options.time_limit))}", flush=True)


def tried(name: str, changes: Mapping[str, str], time_limit: str) -> Mapping[str, object]:
    """Return the JSON document of `dasfprof try` for a program and its patch."""
    source = (DIRECTORY / f"{name}.py").read_text(encoding="utf-8")
    changed = source
    for old, new in changes.items():
        assert old in changed, f"{name} does not contain {old!r}"
        changed = changed.replace(old, new)
    with tempfile.TemporaryDirectory() as place:
        script, patch = Path(place, "program.py"), Path(place, "change.diff")
        script.write_text(source, encoding="utf-8")
        lines = source.splitlines(keepends=True), changed.splitlines(keepends=True)
        patch.write_text("".join(difflib.unified_diff(*lines, "a/program.py", "b/program.py")))
        command = [sys.executable, "-m", "dasfprof", "try", "--json", "--time-limit", time_limit]
        command += ["--patch", str(patch), str(script)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    document: Mapping[str, object] = json.loads(done.stdout)["tried"][0]
    return document


def described(trial: Mapping[str, object]) -> str:
    """Return verdict, time saved and potential savings of a trial as text."""
    gain = trial["gain"]
    if not isinstance(gain, Mapping):
        return f"{trial['verdict']}: {trial['obstacle']}"
    saved = gain["before"] - gain["after"]
    promise = f"{trial['rule']} promised {trial['promised']}" if trial["rule"] else "no finding"
    interval = f"{gain['low']} to {gain['high']}, {gain['pairs']} pairs"
    return f"{trial['verdict']}, {saved:.2f} s of {gain['before']:.2f} ({interval}); {promise}"


if __name__ == "__main__":
    main()
