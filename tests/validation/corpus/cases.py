"""Record the programs from public questions, and print how well each is diagnosed.

``cases.py [--corpus-traces DIR] [CASE ...]`` prints a row per case with the first finding and a
verdict: the actual cause is named first, below other findings, or not at all, or a finding is
wrong, or advice is harmful. With ``--again``, it diagnoses existing traces without running the
programs.
"""

import argparse
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from expectations import Declaration, declaration
from run import BUSY, CASES, programs, record, recorded

from dasfprof.text import elide

#: Verdicts, best first. If several are true, the worst one counts.
VERDICTS = ("first", "below", "silent", "wrong", "harmful")


def verdict(declared: Declaration, findings: pd.DataFrame, busy: bool) -> str:
    """Return how well a diagnosis names the cause of a case: one of `VERDICTS`."""
    wanted = [expected for expected in declared.expectations if expected.wanted]
    unwanted = [expected for expected in declared.expectations if not expected.wanted]
    violated = [expected for expected in unwanted if not expected.holds(findings, busy)]
    if violated:
        return "harmful" if any(expected.harmful for expected in violated) else "wrong"
    if not all(expected.holds(findings, busy) for expected in wanted):
        return "silent"
    first = (dataclasses.replace(expected, first=True) for expected in wanted)
    return "first" if all(expected.holds(findings, busy) for expected in first) else "below"


def main(arguments: Sequence[str] | None = None) -> None:
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
