"""The commands of the shell: ``dasfprof ...``, or ``dask dasfprof ...``."""


class ScriptInterrupted(SystemExit):
    """Ctrl-C ended the user's script. The script's traceback has already been printed."""
