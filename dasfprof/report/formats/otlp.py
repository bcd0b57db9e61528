"""OpenTelemetry's protocol as JSON: a run, its steps and its task runs as the spans of one trace.

A file has a request of the protocol on each line, as the collector's ``otlpjsonfile`` receiver
reads it; `send_spans` posts the same requests to an endpoint. Both follow OTLP 1.x: numbers of 64
bits are texts, ids are hexadecimal, times are Unix nanoseconds. No library is needed.

Each task run has a link to each whose result it took, and its step's span as parent, or the run's.
Equal runs get equal ids, so that what is sent twice is there once.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import time
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import numpy as np

from dasfprof.analysis.trace.columns import row_of
from dasfprof.errors import CannotWriteError, InvalidArgumentError
from dasfprof.report.documents import shown
from dasfprof.report.formats.drawn import Argument, DrawnRun, Names, opened
from dasfprof.text import clean

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser

#: Spans of a request; links of a span, which is OpenTelemetry's own default.
_BLOCK, _MOST_LINKS = 2000, 128
#: Within the process, and an error, as the protocol numbers them.
_INTERNAL, _ERROR = 1, 2
#: What of a task run becomes which attribute.
_ATTRIBUTES = {
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
#: Bits of a span's number within its run.
_NUMBER_BITS = 40

Span = dict[str, Any]
RequestBody = dict[str, Any]


def write_otlp(analyser: Analyser, path: Path, title: str) -> None:
    """Write a run as OTLP/JSON, a request a line; compressed if the file's name ends in ``.gz``.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    with opened(path) as file:
        for body in Spans(analyser, title).requests():
            file.write(_encoded(body) + b"\n")


def _encoded(body: RequestBody) -> bytes:
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


class Spans:
    """The spans of a run.

    Parameters
    ----------
    analyser
        The run.
    title
        What it is called: the spans' ``service.name``.
    """

    def __init__(self, analyser: Analyser, title: str) -> None:
        self._run = run = analyser.run.whole
        self._title = shown(title)
        self._drawn = DrawnRun(analyser.run, title)
        self._begin = int(np.rint(run.begin * 1e9)) if np.isfinite(run.begin) else 0
        seconds = run.wall if np.isfinite(run.wall) else 0.0
        self._length = int(seconds * 1e9)
        about = f"{title} {self._begin} {len(run.tasks)}".encode("utf-8", "replace")
        identity = hashlib.blake2b(about, digest_size=24).digest()
        self._trace_id = identity[:16].hex()
        self._base = int.from_bytes(identity[16:], "big") >> _NUMBER_BITS << _NUMBER_BITS
        #: When steps were entered, in order: a span each, from the second on.
        self._steps = sorted(
            (mark for mark in self._drawn.marks() if mark.category == "step"),
            key=lambda mark: mark.time,
        )
        #: By path of a step: when its spans begin, and their numbers.
        self._of_paths: dict[str, tuple[list[int], list[int]]] = {}
        for number, mark in enumerate(self._steps, 2):
            starts, numbers = self._of_paths.setdefault(mark.name, ([], []))
            starts.append(mark.time)
            numbers.append(number)
        #: The number of the first task run's span.
        self._first = 2 + len(self._steps)

    def requests(self) -> Iterator[RequestBody]:
        """Yield the bodies of requests: the run and its steps, then its task runs."""
        yield self._body([(self._resource(), [self._run_span(), *self._spans_of_steps()])])
        yield from self._of_tasks()

    def _body(self, of_resources: list[tuple[list[Any], list[Span]]]) -> RequestBody:
        version = self._run.surroundings.versions.get("dasfprof", "")
        scope = {"name": "dasfprof", "version": version}
        return {
            "resourceSpans": [
                {
                    "resource": {"attributes": resource},
                    "scopeSpans": [{"scope": scope, "spans": spans}],
                }
                for resource, spans in of_resources
            ]
        }

    def _resource(self, worker: int | None = None) -> list[Any]:
        """Return the attributes of the run's resource, or of a worker's."""
        told: dict[str, Any] = {"service.name": self._title}
        if worker is None:
            versions = self._run.surroundings.versions
            told |= {f"{name}.version": version for name, version in versions.items()}
            told["process.command"] = self._run.surroundings.command or None
        else:
            row = row_of(self._run.workers, worker)
            told["service.instance.id"] = row["worker"] or None
            told["host.name"] = row["host"] or None
            pid = self._run.workers["pid"].to_numpy(dtype=float, na_value=np.nan)[worker]
            told["process.pid"] = int(pid) if np.isfinite(pid) else None
            told["dask.worker.address"] = row["address"] or None
        return _attributes(told)

    def _id(self, number: int) -> str:
        return f"{self._base + number:016x}"

    def _span(self, number: int, parent: int, name: object, start: int, length: int) -> Span:
        begin = self._begin + start
        span = {
            "traceId": self._trace_id,
            "spanId": self._id(number),
            "name": shown(name) or "task",
            "kind": _INTERNAL,
            "startTimeUnixNano": str(begin),
            "endTimeUnixNano": str(begin + length),
        }
        return span if not parent else {**span, "parentSpanId": self._id(parent)}

    def _run_span(self) -> Span:
        run, notes = self._run, self._drawn.about()["notes"]
        told = {"dask.tasks": len(run.tasks), "dasfprof.notes": list(map(shown, notes)) or None}
        return {
            **self._span(1, 0, self._title, 0, max(self._length, 1)),
            "attributes": _attributes(told),
        }

    # --- steps -----------------------------------------------------------------------------------

    def _spans_of_steps(self) -> Iterator[Span]:
        for number, mark in enumerate(self._steps, 2):
            around, _, name = mark.name.rpartition("/")
            parent = self._step_at(around, mark.time)
            span = self._span(number, parent, name, mark.time, mark.duration or 1)
            yield {**span, "attributes": _attributes({"dask.step": mark.name})}

    def _step_at(self, path: str, time: int) -> int:
        """Return the last span of a step that had begun by then, else its first, or the run's."""
        starts, numbers = self._of_paths.get(path, ([], [1]))
        return numbers[max(bisect_right(starts, time) - 1, 0)]

    # --- task runs -------------------------------------------------------------------------------

    def _of_tasks(self) -> Iterator[RequestBody]:
        tasks = self._drawn.tasks
        names, columns = tasks.functions(), tasks.arguments()
        titles = [*names.texts, "task"]
        threads = self._run.tasks["thread"].to_numpy(dtype=object)
        exceptions = self._run.tasks["exception"].to_numpy(dtype=object)
        workers = self._run.tasks["worker_id"].to_numpy()
        for part in tasks.slices.blocks(_BLOCK):
            links = self._links(part)
            keys, told = tasks.keys(part), _rows_of(columns, part)
            of_workers: dict[int, list[Span]] = {}
            for place, row in enumerate(tasks.slices.rows[part].tolist()):
                number = part.start + place
                facts: dict[str, Any] = {"dask.key": keys[place], **told[place]}
                facts["thread.id"] = _thread(threads[row])
                start = int(tasks.slices.starts[number])
                length = int(tasks.slices.stops[number]) - start
                step = facts.get("dask.step")
                parent = 1 if step is None else self._step_at(step, start)
                name = titles[names.codes[number]]
                span = self._span(self._first + number, parent, name, start, length)
                if tasks.open[number]:
                    facts["dask.unfinished"] = True
                span["attributes"] = _attributes(facts)
                span |= links.get(number, {})
                if tasks.failed[number]:
                    span |= _failure(exceptions[row], span["endTimeUnixNano"])
                of_workers.setdefault(int(workers[row]), []).append(span)
            yield self._body(
                [(self._resource(worker), spans) for worker, spans in of_workers.items()]
            )

    def _links(self, part: slice) -> dict[int, dict[str, Any]]:
        """Return for task runs the links to those whose results they took."""
        arrows = self._drawn.dependencies(part)
        made: dict[int, list[int]] = {}
        for maker, taker in zip(arrows.made.tolist(), arrows.to.tolist(), strict=True):
            made.setdefault(taker, []).append(maker)
        found: dict[int, dict[str, Any]] = {}
        for taker, makers in made.items():
            ids = [self._id(self._first + maker) for maker in makers[:_MOST_LINKS]]
            found[taker] = {"links": [{"traceId": self._trace_id, "spanId": each} for each in ids]}
            if len(makers) > _MOST_LINKS:
                found[taker]["droppedLinksCount"] = len(makers) - _MOST_LINKS
        return found


def _thread(thread: Any) -> int | None:
    return int(thread) if isinstance(thread, str) and thread.isdecimal() else None


def _failure(exception: Any, at: str) -> Span:
    message = shown(exception) if isinstance(exception, str) else "unknown"
    about = _attributes({"exception.message": message})
    event = {"name": "exception", "timeUnixNano": at, "attributes": about}
    return {"status": {"code": _ERROR, "message": message}, "events": [event]}


def _attributes(told: dict[str, Any]) -> list[Any]:
    """Return attributes as the protocol has them, without those that are unknown."""
    return [
        {"key": key, "value": _value(value)} for key, value in told.items() if value is not None
    ]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": list(map(_value, value))}}
    return {"stringValue": shown(value)}


def _rows_of(columns: list[Argument], part: slice) -> list[dict[str, Any]]:
    """Return what is known of some task runs, by the names of attributes."""
    rows: list[dict[str, Any]] = [{} for _ in range(part.stop - part.start)]
    for column in columns:
        name = _ATTRIBUTES.get(column.label)
        if name is None:
            continue
        if isinstance(column, Names):
            for row, code in zip(rows, column.codes[part].tolist(), strict=True):
                if code >= 0:
                    row[name] = column.texts[code]
            continue
        values = column.values[part]
        known = np.isfinite(values.astype(float))
        for row, value, is_known in zip(rows, values.tolist(), known.tolist(), strict=True):
            if is_known:
                row[name] = int(value) if column.whole else float(value)
    return rows


# --- Sending --------------------------------------------------------------------------------------

#: Seconds that one request may take, and to wait before it is tried again.
_TIMEOUT, _PAUSES = 30.0, (0.5, 1.0, 2.0, 4.0)
#: Answers after which the protocol has one try again.
_TRY_AGAIN = (429, 502, 503, 504)
_PATH = "/v1/traces"


def send_spans(analyser: Analyser, endpoint: str, title: str) -> int:
    """Send a run to a collector, or whatever takes OTLP over HTTP as JSON; return how many spans.

    The headers are those of the variable ``OTEL_EXPORTER_OTLP_HEADERS``.

    Parameters
    ----------
    analyser
        The run.
    endpoint
        ``http://localhost:4318``, to which ``/v1/traces`` is added, or the whole URL of that.
    title
        What the run is called: the spans' ``service.name``.

    Raises
    ------
    InvalidArgumentError
        If the endpoint is no URL.
    CannotWriteError
        If it does not answer or refuses: the message says what was sent by then.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidArgumentError(
            f"endpoint={endpoint!r}: give a URL such as 'http://localhost:4318'."
        )
    url = endpoint if parts.path.rstrip("/").endswith(_PATH) else endpoint.rstrip("/") + _PATH
    own = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    headers = {**_headers(), **own}
    sent = 0
    for body in Spans(analyser, title).requests():
        count = sum(len(s["spans"]) for r in body["resourceSpans"] for s in r["scopeSpans"])
        try:
            answer = _post(Request(url, gzip.compress(_encoded(body), 3), headers))
        except OSError as error:
            raise CannotWriteError(
                f"{clean(url)} took {sent} spans and then failed: {clean(error)}."
            ) from error
        refused = answer.get("partialSuccess") or {}
        rejected = int(refused.get("rejectedSpans") or 0)
        if rejected:
            why = clean(refused.get("errorMessage") or "it does not say why")
            raise CannotWriteError(f"{clean(url)} took {sent} spans and refused {rejected}: {why}.")
        sent += count
    return sent


def _post(request: Request) -> dict[str, Any]:
    """Post a request; return the answer, empty if it is no JSON. Busy servers are asked again."""
    for pause in (*_PAUSES, None):
        try:
            with urlopen(request, timeout=_TIMEOUT) as answer:
                text = answer.read()
            break
        except HTTPError as error:
            if pause is None or error.code not in _TRY_AGAIN:
                raise
        except URLError as error:
            if pause is None or not isinstance(error.reason, ConnectionError):
                raise
        time.sleep(pause)
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _headers() -> dict[str, str]:
    """Return the headers that OpenTelemetry's own variable names."""
    pairs = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")
    told = (pair.partition("=") for pair in pairs if "=" in pair)
    return {unquote(name).strip(): unquote(value).strip() for name, _, value in told}
