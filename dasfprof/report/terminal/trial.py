"""What trying changes has shown, in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dasfprof.report.terminal.console import Part, heading, print_entry, print_notes, say
from dasfprof.text import clean, elide, format_duration

if TYPE_CHECKING:
    from dasfprof.analysis.comparison.trial import Trial

_COLOURS = {"gained": "green", "lost": "red", "results differ": "red", "no result": "red"}
_LONGEST = 700


def print_trials(trials: Sequence[Trial]) -> None:
    """Print each change that was tried: what the finding says, and what it gained."""
    for place, trial in enumerate(trials):
        if not trial.change:
            say(clean(trial.obstacle))
            continue
        heading(trial.words, f"  {trial.rule}" if trial.rule else "", apart=place > 0)
        first, *more = (elide(sentence, _LONGEST) for sentence in trial.sentences)
        parts = [Part(first, f"bold {_COLOURS.get(trial.kind, 'yellow')}")]
        parts += [Part(sentence) for sentence in more]
        if trial.finding:
            parts.append(Part(elide(trial.finding, _LONGEST), "dim", lead="of: "))
        if trial.runs:
            parts.append(Part(_runs(trial), "dim"))
        print_entry("  ", None, parts)
        print_notes(trial.notes)


def _runs(trial: Trial) -> str:
    sides = [
        ", ".join(format_duration(run.seconds) for run in trial.runs if run.changed is changed)
        for changed in (False, True)
    ]
    return f"As it is: {sides[0]}. With the change: {sides[1]}."
