"""A class in a module of its own, whose lines build what programs compute."""

from __future__ import annotations

from typing import Any

from lined_programs import cost


class Model:
    """Builds an array when it is fitted."""

    def fit(self, x: Any) -> Any:
        return x.map_blocks(cost, "in the library", dtype=float)  # at: in the library
