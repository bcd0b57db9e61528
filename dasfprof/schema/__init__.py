"""Schemas of recorded events: the classes of events, and the columns of each kind of event."""

from __future__ import annotations

from dasfprof.schema import profiles, resources, steps, tasks, under_way
from dasfprof.schema.events import EventKind

#: Names of events that only earlier versions recorded. No table contains these events.
FORMER_EVENTS = frozenset(("Loop Blocked", "Task Unpickled"))
#: All kinds of events that dasfprof records, by phase and name.
KINDS: dict[tuple[str, str], EventKind] = {
    (kind.phase, kind.name): kind
    for module in (tasks, resources, steps, under_way, profiles)
    for kind in vars(module).values()
    if isinstance(kind, EventKind)
}
