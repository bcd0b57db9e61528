"""The commands of the shell: ``dasfprof ...``, or ``dask dasfprof ...``."""


class ScriptInterrupted(SystemExit):
    """Ctrl-C ended the script, and its traceback was printed."""
