"""OpenTelemetry: a run, its steps and its task runs as the spans of one trace.

`write_otlp` writes OTLP/JSON, one request per line, as the collector's ``otlpjsonfile`` receiver
reads it. `send_spans` sends the same spans to an endpoint. Both use OpenTelemetry's own classes.

Each task run links to the task runs whose results it used. Its parent is the span of its step, or
of the run. Equal runs get equal ids, so that a run that is sent twice is stored once.
"""

from __future__ import annotations

import base64
import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from dasfprof.analysis.trace.columns import row_of
from dasfprof.errors import CannotWriteError, InvalidArgumentError, MissingExtraError
from dasfprof.report.documents import shown
from dasfprof.report.formats.drawn import DrawnRun, opened
from dasfprof.text import clean

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

    from dasfprof.analysis import Analyser

#: Maximum number of spans per request, and of links per span (OpenTelemetry's default).
_BLOCK, _MAXIMUM_LINKS = 2000, 128
#: Attributes of the span of a task run, by the labels of the arguments of its slice.
_ATTRIBUTES = {
    "key": "dask.key",
    "run id": "dask.run_id",
    "worker": "dask.worker",
    "step": "dask.step",
    "state": "dask.state",
    "type": "dask.result.type",
    "dtype": "dask.result.dtype",
    "shape": "dask.result.shape",
    "size (B)": "dask.result.size",
    "input size (B)": "dask.input.size",
    "CPU (s)": "dask.cpu_time",
    "Waited for a core (s)": "dask.core_wait_time",
}
#: Number of bits of a span id that contain the number of the span in its run.
_NUMBER_BITS = 40
_PATH = "/v1/traces"


def write_otlp(analyser: Analyser, path: Path, title: str) -> None:
    """Write a run as OTLP/JSON, one request per line. It is compressed if the name ends in ``.gz``.

    Raises
    ------
    MissingExtraError
        If OpenTelemetry's packages are not installed.
    OSError
        If the file cannot be written.
    """
    _check_packages()
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    with opened(path) as file:
        for spans in Spans(analyser, title).blocks():
            body = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
            text = json.dumps(_with_hexadecimal_ids(body), separators=(",", ":"))
            file.write(text.encode() + b"\n")


def _with_hexadecimal_ids(value: Any, key: str = "") -> Any:
    """Return a request with hexadecimal ids instead of base64, as OTLP/JSON requires."""
    if isinstance(value, dict):
        return {name: _with_hexadecimal_ids(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_hexadecimal_ids(item) for item in value]
    is_id = key in ("traceId", "spanId", "parentSpanId")
    return base64.b64decode(value).hex() if is_id else value


def send_spans(analyser: Analyser, endpoint: str, title: str) -> int:
    """Send a run to a collector, or to any backend that takes OTLP over HTTP.

    OpenTelemetry's exporter sends the spans. It retries while the endpoint is busy, and its
    environment variables, such as ``OTEL_EXPORTER_OTLP_HEADERS``, apply.

    Parameters
    ----------
    analyser
        The run.
    endpoint
        ``http://localhost:4318``, to which ``/v1/traces`` is added, or the complete URL.
    title
        Name of the run, which becomes ``service.name`` of the spans.

    Returns
    -------
    int
        Number of spans.

    Raises
    ------
    InvalidArgumentError
        If the endpoint is not a URL.
    MissingExtraError
        If OpenTelemetry's packages are not installed.
    CannotWriteError
        If the endpoint does not answer or refuses spans.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidArgumentError(
            f"endpoint={endpoint!r}: expected a URL such as 'http://localhost:4318'."
        )
    _check_packages()
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    url = endpoint if parts.path.rstrip("/").endswith(_PATH) else endpoint.rstrip("/") + _PATH
    exporter = OTLPSpanExporter(url, compression=Compression.Gzip)
    sent = 0
    for spans in Spans(analyser, title).blocks():
        if exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise CannotWriteError(
                f"{clean(url)} accepted {sent} spans and then failed. OpenTelemetry's log has the "
                "reason."
            )
        sent += len(spans)
    return sent


def _check_packages() -> None:
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "the format 'otlp' needs OpenTelemetry's exporter: pip install 'dasfprof[otlp]'."
        ) from error


class Spans:
    """The spans of a run.

    Parameters
    ----------
    title
        Name of the run, which becomes ``service.name`` of the spans.
    """

    def __init__(self, analyser: Analyser, title: str) -> None:
        self._run = run = analyser.run
        self._title = shown(title)
        self._drawn = DrawnRun(analyser.run, title)
        self._begin = int(np.rint(run.begin * 1e9)) if np.isfinite(run.begin) else 0
        about = f"{title} {self._begin} {len(run.task_runs)}".encode("utf-8", "replace")
        identity = hashlib.blake2b(about, digest_size=24).digest()
        self._trace_id = int.from_bytes(identity[:16], "big")
        self._base = int.from_bytes(identity[16:], "big") >> _NUMBER_BITS << _NUMBER_BITS
        #: The steps, sorted by the time at which they were entered. Span 1 is the run, and the
        #: spans of the steps follow.
        self._steps = sorted(
            (mark for mark in self._drawn.marks() if mark.category == "step"),
            key=lambda mark: mark.time,
        )
        #: For each path of a step, the sorted starts of its spans, and the numbers of these spans.
        self._of_paths: dict[str, tuple[list[int], list[int]]] = {}
        for number, mark in enumerate(self._steps, 2):
            starts, numbers = self._of_paths.setdefault(shown(mark.name), ([], []))
            starts.append(mark.time)
            numbers.append(number)
        self._first_task = 2 + len(self._steps)

    def blocks(self) -> Iterator[list[ReadableSpan]]:
        """Yield the spans of each request: the run and its steps, then blocks of task runs."""
        run, resource = self._run, self._resource()
        notes = [shown(note) for note in self._drawn.about()["notes"]]
        about = {"dask.tasks": len(run.task_runs), "dasfprof.notes": notes or None}
        times = 0, max(int(run.wall * 1e9), 1) if np.isfinite(run.wall) else 1
        spans = [self._span(1, 0, self._title, times=times, resource=resource, attributes=about)]
        for number, mark in enumerate(self._steps, 2):
            around, _, name = mark.name.rpartition("/")
            parent, times = self._step_at(around, mark.time), (mark.time, mark.duration or 1)
            path = {"dask.step": shown(mark.name)}
            span = self._span(number, parent, name, times=times, resource=resource, attributes=path)
            spans.append(span)
        yield spans
        yield from self._task_blocks()

    def _resource(self, worker: int | None = None) -> Resource:
        """Return the OpenTelemetry resource that describes the run, or a worker of the run."""
        from opentelemetry.sdk.resources import Resource

        attributes: dict[str, Any] = {"service.name": self._title}
        if worker is None:
            versions = self._run.surroundings.versions
            attributes |= {f"{name}.version": version for name, version in versions.items()}
            attributes["process.command"] = shown(self._run.surroundings.command) or None
        else:
            row = row_of(self._run.workers, worker)
            attributes["service.instance.id"] = shown(row["worker"]) or None
            attributes["host.name"] = shown(row["host"]) or None
            pid = self._run.workers["pid"].to_numpy(dtype=float, na_value=np.nan)[worker]
            attributes["process.pid"] = int(pid) if np.isfinite(pid) else None
            attributes["dask.worker.address"] = shown(row["address"] or "") or None
        return Resource(_known(attributes))

    def _context(self, number: int) -> SpanContext:
        from opentelemetry.trace import SpanContext

        return SpanContext(self._trace_id, self._base + number, is_remote=False)

    def _span(
        self,
        number: int,
        parent: int,
        name: object,
        *,
        times: tuple[int, int],
        resource: Resource,
        attributes: dict[str, Any],
        **more: Any,
    ) -> ReadableSpan:
        """Return the span that has this number in the run.

        `parent` is the number of its parent, or 0 for none. `times` are the start (since the run's
        start) and the duration of the span, in ns. `more` has further arguments of `ReadableSpan`.
        """
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        version = self._run.surroundings.versions.get("dasfprof", "")
        return ReadableSpan(
            shown(name) or "task",
            self._context(number),
            self._context(parent) if parent else None,
            resource,
            _known(attributes),
            start_time=self._begin + times[0],
            end_time=self._begin + sum(times),
            instrumentation_scope=InstrumentationScope("dasfprof", version),
            **more,
        )

    def _step_at(self, path: str, time: int) -> int:
        """Return the number of the last span of the step `path` that started at `time` or before.

        `time` is in ns since the run's start. If all spans of the step started later, return the
        number of the first. If it has no spans, return the number of the run's span.
        """
        starts, numbers = self._of_paths.get(shown(path), ([], [1]))
        return numbers[max(bisect_right(starts, time) - 1, 0)]

    def _task_blocks(self) -> Iterator[list[ReadableSpan]]:
        tasks, slices = self._drawn.tasks, self._drawn.tasks.slices
        columns = {
            _ATTRIBUTES[label]: tasks.arguments[label]
            for label in _ATTRIBUTES
            if label in tasks.arguments
        }
        threads = self._run.task_runs["thread"].to_numpy(dtype=object)
        exceptions = self._run.task_runs["exception"].to_numpy(dtype=object)
        workers = self._run.task_runs["worker_id"].to_numpy()
        resources = {number: self._resource(number) for number in np.unique(workers).tolist()}
        for part in slices.blocks(_BLOCK):
            links, names, spans = self._links(part), tasks.names(part), []
            rows = zip(*(listed(part) for listed in columns.values()), strict=True)
            for number, name, values in zip(range(part.start, part.stop), names, rows, strict=True):
                attributes = dict(zip(columns, values, strict=True))
                row, start = slices.rows[number], int(slices.starts[number])
                thread, step = threads[row], attributes["dask.step"]
                if isinstance(thread, str) and thread.isdecimal():
                    attributes["thread.id"] = int(thread)
                if tasks.open[number]:
                    attributes["dask.unfinished"] = True
                more: dict[str, Any] = {"links": links.get(number, ())}
                if tasks.failed[number]:
                    end = self._begin + int(slices.stops[number])
                    more |= _failure(exceptions[row], end)
                spans.append(
                    self._span(
                        self._first_task + number,
                        1 if step is None else self._step_at(step, start),
                        name or "",
                        times=(start, int(slices.stops[number]) - start),
                        resource=resources[int(workers[row])],
                        attributes=attributes,
                        **more,
                    )
                )
            yield spans

    def _links(self, part: slice) -> dict[int, Any]:
        """Return links from the task runs in `part` to the task runs that made their inputs.

        The keys of the result are the indices of task runs in `part`.
        """
        from opentelemetry.sdk.util import BoundedList
        from opentelemetry.trace import Link

        arrows = self._drawn.dependencies(part)
        links: dict[int, Any] = {}
        for maker, taker in zip(arrows.made.tolist(), arrows.to.tolist(), strict=True):
            of_taker = links.setdefault(taker, BoundedList(_MAXIMUM_LINKS))
            of_taker.append(Link(self._context(self._first_task + maker)))
        return links


def _failure(exception: Any, at: int) -> dict[str, Any]:
    """Return arguments for the span of a failed task run: its status, and an exception event."""
    from opentelemetry.sdk.trace import Event
    from opentelemetry.trace import Status, StatusCode

    message = shown(exception) if isinstance(exception, str) else "unknown"
    event = Event("exception", {"exception.message": message}, timestamp=at)
    return {"status": Status(StatusCode.ERROR, message), "events": [event]}


def _known(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
