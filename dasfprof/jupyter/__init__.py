"""dasfprof in notebooks: ``%load_ext dasfprof``, ``%%dasfprof``, and `show` for any run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dasfprof.jupyter.view import RunView, show

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["RunView", "load_ipython_extension", "show"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics with a shell; called by ``%load_ext dasfprof``."""
    from dasfprof.jupyter.magic import CellMagic
    from dasfprof.jupyter.view import dasfprof_compare

    shell.register_magic_function(CellMagic(shell).dasfprof, "cell", "dasfprof")
    shell.register_magic_function(dasfprof_compare, "line", "dasfprof_compare")
