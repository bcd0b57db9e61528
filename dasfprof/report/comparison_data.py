"""A comparison as plain data, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis.comparison import Gate, RunComparison


def comparison_data(comparison: RunComparison, gate: Gate | None = None) -> dict[str, Any]:
    """Return a comparison as dicts and lists; tables are lists of objects by label."""
    verdict = comparison.verdict
    tables = {
        "runs": comparison.runs,
        "waterfall": comparison.waterfall(),
        "waterfall_by_step": comparison.waterfall("step"),
        "thread_time": comparison.thread_time(),
        "functions": comparison.functions,
        "steps": comparison.steps,
        "memory": comparison.memory,
        "hot_lines": comparison.hot_lines(),
        "findings": comparison.findings,
        "surroundings": comparison.surroundings,
    }
    return {
        "verdict": {
            "kind": verdict.kind,
            "certain": verdict.certain,
            "before": verdict.means[0],
            "after": verdict.means[1],
            "change": verdict.change,
            "p": verdict.p,
        },
        "gate": None
        if gate is None
        else {"limit": gate.limit, "closed": gate.is_closed, "p": gate.p, "text": gate.text},
        "sentences": comparison.sentences,
        "notes": comparison.notes,
        **{name: _records(table) for name, table in tables.items()},
    }


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    values = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in values.to_dict("records")]
