"""A run while it goes on, in words: what terminal, notebook and dashboard say alike."""

from __future__ import annotations

from collections.abc import Iterator

from dasfprof.analysis.live.state import RunState
from dasfprof.text import count_of, format_duration, format_share


def state_in_words(state: RunState) -> str:
    """Write whether the run goes on, and for how long it has."""
    words = "goes on" if state.goes_on else "has ended"
    if state.goes_on is None:
        words = "goes on elsewhere, or ended without closing its files"
    if state.began is None:
        return words
    return f"{words}, {format_duration(max(state.time - state.began, 0.0))} since the first task"


def counts_in_words(state: RunState) -> str:
    """Write how many tasks are done, and where the others are."""
    bound = "at most " * state.total_is_bound
    total = f" of {bound}{state.total:,}" if state.total is not None else ""
    words = [f"{state.done:,}{total} done"]
    if state.on_workers is not None:
        words.append(f"{state.on_workers:,} on workers")
    if state.waiting is not None:
        words.append(f"{state.waiting:,} waiting")
    if state.failed:
        words.append(f"{state.failed:,} failed")
    return ", ".join(words)


def pace_in_words(state: RunState) -> Iterator[str]:
    """Write the rate and the time left, as far as they are known."""
    if state.rate:
        yield f"{rate(state.rate)} a second"
    left = state.total is None or state.done + state.failed < state.total
    if state.seconds_left is not None and state.goes_on and left:
        bound = "at most " * state.total_is_bound or "at least " * bool(state.unknown_tasks)
        seconds = round(state.seconds_left)
        yield f"{bound}{format_duration(seconds)} left" if seconds else "the rest is due"
    if state.unknown_tasks:
        yield f"{count_of(state.unknown_tasks, 'task')} of functions of which none has ended"


def share_in_words(state: RunState) -> str:
    """Write the share of the tasks that have ended, 100 % only if all have."""
    ended, total = state.done + state.failed, state.total or 1
    share = format_share(min(ended / total, 0.99) if ended < total else 1.0)
    return f"at least {share}" if state.total_is_bound and ended < total else share


def rate(number: float) -> str:
    """Write how many a second, in three digits."""
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.3g}"
