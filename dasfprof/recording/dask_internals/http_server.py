"""Routes on the HTTP server of a scheduler that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dasfprof.recording.dask_internals import names


def add_routes(
    scheduler: Any, routes: list[tuple[str, type, dict[str, Any]]]
) -> Callable[[], None]:
    """Add routes before those that are there; none if the scheduler has no HTTP server.

    Returns
    -------
    callable
        Takes them off again.
    """
    application = getattr(scheduler, "http_application", None)
    if application is None:
        return lambda: None
    rules = application.default_router.rules
    before = list(rules)
    application.add_handlers(".*$", routes)
    added = [rule for rule in rules if rule not in before]
    # Tornado puts them behind those of an earlier run, which would answer in their place.
    rules[:] = added + before

    def remove() -> None:
        for rule in added:
            rules.remove(rule)

    return remove


def individual_plots() -> type | None:
    """Return the handler that lists the dashboard's plots; None if this Dask has none."""
    found: type | None = names.PLOTS.find("IndividualPlots")
    return found
