"""The Chrome Trace Event Format, for Perfetto and Chrome's viewer."""
