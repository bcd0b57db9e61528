"""`find_client`: the Dask client of what a user wants to profile."""

from __future__ import annotations

from typing import Any

from distributed import Client
from distributed.deploy.cluster import Cluster

from dasfprof.errors import NoClientError, RegistrationError

_WHAT_TO_PASS = (
    "Pass a distributed.Client, a Cluster, an object with a `.client`, or a DASF Pipeline with a "
    "DaskPipelineExecutor; `Client()` starts a cluster on this machine."
)


def find_client(pipeline: Any) -> tuple[Client, bool]:
    """Return the Dask client of the object that the user wants to profile.

    Parameters
    ----------
    pipeline
        None: the client that Dask itself would use.

    Returns
    -------
    client
    owned : bool
        Whether the client was created here, for a cluster, and is to be closed with the run.

    Raises
    ------
    NoClientError
        If there is none.
    RegistrationError
        If it is closed.
    """
    if pipeline is None:
        pipeline = _current_client()
    if isinstance(pipeline, Cluster):
        if pipeline.status.name in ("closed", "closing", "failed"):
            raise RegistrationError(f"{pipeline!r} is {pipeline.status.name}; start a new one.")
        asynchronous = bool(pipeline.asynchronous)
        return Client(pipeline, asynchronous=asynchronous, set_as_default=False), True
    # A DASF pipeline has an executor, whose `client` is Dask's; its own `register_plugin`
    # calls a method that Dask no longer has.
    candidates = (
        pipeline,
        getattr(pipeline, "client", None),
        getattr(getattr(pipeline, "_executor", None), "client", None),
    )
    client = next((item for item in candidates if isinstance(item, Client)), None)
    if client is None:
        executor = getattr(pipeline, "_executor", None)
        what = f" (executor: {type(executor).__name__})" if executor is not None else ""
        raise NoClientError(
            f"got an object of type {type(pipeline).__name__}{what}, which has no Dask client, so "
            f"there is no cluster to observe. {_WHAT_TO_PASS}"
        )
    if client.status not in ("running", "connecting", "newly-created"):
        raise RegistrationError(f"{client!r} is {client.status}; connect a new client.")
    return client, False


def _current_client() -> Client:
    try:
        return Client.current()
    except ValueError:
        raise NoClientError(
            f"there is no Dask client in this process, and none was passed. {_WHAT_TO_PASS}"
        ) from None
