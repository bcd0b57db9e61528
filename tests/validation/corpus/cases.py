"""Records the programs of threads that people began in public, and prints what is said of each.

``cases.py [--corpus-traces DIR] [CASE ...]`` prints a row a case: whether the
true cause is named first, below something else or not at all, or something is said that is wrong
or does harm when it is followed; and what is said first. Traces there are told of again with
``--again``, without running the programs.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from expectations import Declaration, declaration
from run import BUSY, CASES, programs, record, recorded

from dasfprof.text import elide

#: How far a cause is named, from the best on. What is wrong counts before what is right.
VERDICTS = ("first", "below", "silent", "wrong", "harmful")


def verdict(declared: Declaration, findings: pd.DataFrame, busy: bool) -> str:
    """Tell how far a diagnosis names a case's cause."""
    wanted = [one for one in declared.expectations if one.wanted]
    unwanted = [one for one in declared.expectations if not one.wanted]
    violated = [one for one in unwanted if not one.holds(findings, busy)]
    if violated:
        return "harmful" if any(one.harmful for one in violated) else "wrong"
    if not all(one.holds(findings, busy) for one in wanted):
        return "silent"
    first = (dataclasses.replace(one, first=True) for one in wanted)
    return "first" if all(one.holds(findings, busy) for one in first) else "below"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--corpus-traces", type=Path, default=Path("case-traces"), metavar="DIR")
    parser.add_argument("--again", action="store_true", help="run no program, read its trace")
    options = parser.parse_args(arguments)
    directory, count = options.corpus_traces.resolve(), Counter[str]()
    print(f"{'case':18}{'cause is':10}{'others':>7}  said first")
    known = [name for name in programs(CASES) if not options.again or (directory / name).exists()]
    for name in options.cases or known:
        done = recorded(name, directory) if options.again else record(name, directory)
        found = verdict(declaration(name), done.findings, done.busy_elsewhere > BUSY)
        count[found] += 1
        said = done.findings.head(1).to_dict("records")
        first = f"{said[0]['Severity']}, {said[0]['Rule']}: {said[0]['Finding']}" if said else ""
        print(f"{name:18}{found:10}{done.busy_elsewhere:7.0%}  {elide(first, 150)}", flush=True)
    print(", ".join(f"{word}: {number}" for word, number in count.items()))


if __name__ == "__main__":
    main()
