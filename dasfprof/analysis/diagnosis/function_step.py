"""In which step of the pipeline the function of a finding ran."""

from __future__ import annotations

import dataclasses

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.wording import excerpt, percent
from dasfprof.analysis.step_groups import NO_STEP, has_steps, step_groups


def with_step(finding: Finding, run: RunFigures) -> Finding:
    """Let the evidence of a finding about a function name its step, where steps are known.

    Of several steps it is the one with most of the function's seconds, with its share of them.
    """
    if finding.function is None or not has_steps(run.trace):
        return finding
    own = np.flatnonzero((run.function_names == finding.function)[run.functions.codes])
    codes, names = step_groups(run.trace.tasks)
    seconds = np.bincount(codes[own], weights=run.working[own], minlength=len(names))
    most = int(seconds.argmax())
    if not seconds[most] > 0 or names[most] == NO_STEP:
        return finding
    share = float(seconds[most] / seconds.sum())
    part = "" if share == 1 else f" for {percent(share)} of its time"
    words = f"{finding.function} ran in the step {excerpt(names[most])}{part}."
    return dataclasses.replace(finding, evidence=f"{finding.evidence} {words}")
