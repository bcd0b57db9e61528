"""OpenTelemetry: files for its parser, and requests for a server."""

import base64
import gzip
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dask
import pytest
from click.testing import CliRunner

import dasfprof
from dasfprof.cli.main import cli
from dasfprof.errors import CannotWriteError, InvalidArgumentError, MissingExtraError
from dasfprof.report.formats.otlp import send_spans

json_format = pytest.importorskip("google.protobuf.json_format")
trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http",
    reason="needs OpenTelemetry's exporter: pip install 'dasfprof[otlp]'",
)


@dask.delayed(pure=True)
def number(n: int) -> int:
    return n


@dask.delayed(pure=True)
def failing(n: int) -> int:
    raise LookupError(f"no {n}")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Record nested steps with three numbers, their sum, and a failing task."""
    with dasfprof.profile(directory=tmp_path_factory.mktemp("traces"), name="otel") as run:
        with dasfprof.step("outer"), dasfprof.step("inner"):
            total = dask.delayed(sum)([number(n) for n in range(3)])
            assert total.compute(scheduler="sync") == 3
        with pytest.raises(LookupError):
            failing(7).compute(scheduler="sync")
    return run


def parsed(body: dict[str, Any]) -> Any:
    """Parse a request with OpenTelemetry. Protobuf's JSON has bytes in base64, OTLP in hex."""

    def to_base64(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: to_base64(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [to_base64(item) for item in value]
        if key in ("traceId", "spanId", "parentSpanId"):
            return base64.b64encode(bytes.fromhex(value)).decode()
        return value

    request = trace_service.ExportTraceServiceRequest()
    return json_format.Parse(json.dumps(to_base64(body)), request)


def attributes(owner: Any) -> dict[str, Any]:
    values = {each.key: each.value for each in owner.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}


def spans_of(requests: list[Any]) -> list[tuple[dict[str, Any], Any]]:
    """Return each span with the attributes of its resource."""
    return [
        (attributes(one.resource), span)
        for request in requests
        for one in request.resource_spans
        for scope in one.scope_spans
        for span in scope.spans
    ]


def test_a_file_is_read_by_opentelemetrys_own_parser(run: Any, tmp_path: Path) -> None:
    for name in ("run.otlp.jsonl", "run.otlp.jsonl.gz"):
        path = dasfprof.export(run.analyser(), tmp_path / name)
        data = path.read_bytes()
        text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
        spans = spans_of([parsed(json.loads(line)) for line in text.splitlines()])
        check(run, spans)


def check(run: Any, spans: list[tuple[dict[str, Any], Any]]) -> None:
    trace = run.analyser().trace
    by_id = {span.span_id: span for _, span in spans}
    assert len(by_id) == len(spans) == 1 + 2 + len(trace.tasks)
    assert {len(span.trace_id) for _, span in spans} == {16}
    assert {len(span.span_id) for _, span in spans} == {8}
    assert len({span.trace_id for _, span in spans}) == 1
    assert {resource["service.name"] for resource, _ in spans} == {run.name}
    named: dict[str, list[Any]] = {}
    for _, span in spans:
        named.setdefault(span.name, []).append(span)
    (root,), (outer,), (inner,) = named[run.name], named["outer"], named["inner"]
    assert root.parent_span_id == b""
    assert (outer.parent_span_id, inner.parent_span_id) == (root.span_id, outer.span_id)
    tasks = [(r, s) for r, s in spans if "dask.key" in attributes(s)]
    assert {resource["host.name"] for resource, _ in tasks} == set(
        trace.workers.loc[trace.workers["kind"] == "worker", "host"]
    )
    assert all(resource["process.pid"] > 0 for resource, _ in tasks)
    starts = sorted(span.start_time_unix_nano for _, span in tasks)
    expected = sorted((trace.tasks["start"] * 1e9).astype("int64").tolist())
    assert max(abs(a - b) for a, b in zip(starts, expected, strict=True)) < 2000
    # The sum used the three numbers, and no other task had inputs.
    numbers = {span.span_id for span in named["number"]}
    (total,) = named["sum"]
    assert {link.span_id for link in total.links} == numbers
    assert {link.trace_id for link in total.links} == {root.trace_id}
    assert sum(len(span.links) for span in by_id.values()) == 3
    assert {span.parent_span_id for span in named["number"]} == {inner.span_id}
    (failed,) = named["failing"]
    assert (failed.status.code, failed.status.message) == (2, "LookupError('no 7')")
    assert attributes(failed.events[0]) == {"exception.message": "LookupError('no 7')"}
    assert failed.parent_span_id == root.span_id


class Receiver:
    """Server that accepts OTLP over HTTP and stores the requests."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], Any]] = []
        #: Statuses of the next responses. Later ones are 200.
        self.statuses: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                if status == 200:
                    request = trace_service.ExportTraceServiceRequest()
                    request.ParseFromString(gzip.decompress(data))
                    receiver.got.append((self.path, dict(self.headers), request))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    thread.join()


def test_an_endpoint_gets_the_same(
    run: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=a%20b,x-more=1")
    receiver.statuses = [503]  # busy at first
    command = ["export", run.source, "--to", "otlp", "--endpoint", receiver.endpoint]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    spans = spans_of([request for *_, request in receiver.got])
    check(run, spans)
    assert f"Sent {len(spans)} spans to {receiver.endpoint}." in done.output
    assert {path for path, *_ in receiver.got} == {"/v1/traces"}
    headers = {name.lower(): value for name, value in receiver.got[0][1].items()}
    assert (headers["x-token"], headers["x-more"]) == ("a b", "1")


def test_a_refusal_names_the_spans_that_were_accepted(run: Any, receiver: Receiver) -> None:
    receiver.statuses = [401]
    with pytest.raises(CannotWriteError, match="accepted 0 spans and then failed"):
        send_spans(run.analyser(), f"{receiver.endpoint}/v1/traces", "name")
    with pytest.raises(InvalidArgumentError, match="expected a URL such as"):
        send_spans(run.analyser(), "localhost:4318", "name")


def test_what_is_missing_or_wrong_is_said(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dasfprof\[otlp\]'"):
        send_spans(run.analyser(), "http://localhost:4318", "name")
    done = CliRunner().invoke(cli, ["export", run.source, "--to", "csv", "--endpoint", "http://x"])
    assert done.exit_code == 2
    assert "--endpoint requires --to otlp" in done.output
