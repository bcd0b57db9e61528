"""What ``import dasfprof`` costs beyond ``import distributed``, by ``python -X importtime``."""

from __future__ import annotations

import argparse
import subprocess
import sys

from measure import Result, spread

STATEMENTS = {
    "import dasfprof": "import distributed, dasfprof",
    "the recording": "import distributed, dasfprof.recording",
}


def milliseconds(statement: str) -> float:
    """Sum the own times of all modules that come after distributed's, in milliseconds."""
    command = [sys.executable, "-X", "importtime", "-c", statement]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    entries = [line.removeprefix("import time:").split("|") for line in lines[1:]]
    names = [name.strip() for _, _, name in entries]
    after = len(names) - 1 - names[::-1].index("distributed")
    return sum(int(own) for own, _, _ in entries[after + 1 :]) / 1000


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args(arguments)
    result = Result("Import", ["beyond distributed", "ms (quartiles)"])
    for name, statement in STATEMENTS.items():
        values = [milliseconds(statement) for _ in range(options.rounds)]
        result.rows.append([name, "{:.1f} ({:.1f} to {:.1f})".format(*spread(values))])
        result.figures[name] = values
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
