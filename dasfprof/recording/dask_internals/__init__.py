"""Everything of Dask that its documentation does not promise, and that the recorder uses.

Each module holds one hook; `names` lists every such name, with what is lost without it. No other
part of dasfprof names one: where a new Dask renames something, the change is made here. A name
that is gone costs its part of the evidence and no more, and the trace's header says so.
"""
