"""Where the documentation is: each finding has a page of its rule's name.

The address is that of the package's own data, ``Documentation`` under ``[project.urls]`` in
``pyproject.toml``. Without one nothing links there.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata


def finding_page(rule: str) -> str:
    """Return the path of the page of a rule, from the documentation's first page on."""
    return f"findings/{rule}.html"


def finding_url(rule: str) -> str | None:
    """Return the address of the page of a rule; None: the documentation has no address."""
    address = _address()
    return None if address is None else f"{address.rstrip('/')}/{finding_page(rule)}"


@cache
def _address() -> str | None:
    try:
        urls = metadata("dasfprof").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from a directory, not installed
        return None
    pairs = (url.partition(",") for url in urls)
    found = (address.strip() for name, _, address in pairs if name.strip() == "Documentation")
    return next(found, None)
