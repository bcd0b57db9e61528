"""S3 server for tests, which can be slow, report wrong results, stop, and restart."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

BUCKET = "bucket"
#: Environment variables that a process needs to use the server, except for its address.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "1",
}


class S3Server:
    """S3 server of moto, in a thread of this process. Its content survives `stop`."""

    def __init__(self) -> None:
        # They take long to import, and most processes that collect tests do not need them.
        moto_app = pytest.importorskip("moto.moto_server.werkzeug_app")
        pytest.importorskip("s3fs")
        self._app = moto_app.DomainDispatcherApplication(moto_app.create_backend_app)
        self.port = 0
        self._server: Any = None
        #: Whether the server accepts objects. If it is cleared, uploads wait.
        self.takes = threading.Event()
        self.takes.set()
        #: Additional seconds for each response with an object.
        self.delay = 0.0
        #: Number of uploads that the server stores but answers with an error.
        self.lies = 0
        #: Names of uploaded and of downloaded objects, in order.
        self.puts: list[str] = []
        self.gets: list[str] = []
        self.start()

    def start(self) -> None:
        from werkzeug.serving import WSGIRequestHandler, make_server

        quiet = type("Quiet", (WSGIRequestHandler,), {"log": lambda *_: None})
        options = {"threaded": True, "request_handler": quiet}
        self._server = make_server("127.0.0.1", self.port, self, **options)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        name = environ["PATH_INFO"].removeprefix(f"/{BUCKET}/")
        is_object = environ["REQUEST_METHOD"] == "PUT" and name != environ["PATH_INFO"]
        if is_object:
            self.takes.wait(60)
            self.puts.append(name)
        if environ["REQUEST_METHOD"] == "GET" and name != environ["PATH_INFO"]:
            self.gets.append(name)
            time.sleep(self.delay)
        answer: Iterable[bytes] = self._app(environ, start)
        if is_object and self.lies:
            self.lies -= 1
            list(answer)
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>a lie</Message></Error>"]
        return answer

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}"}

    def files(self) -> Any:
        """Return an fsspec file system of the server."""
        import fsspec

        return fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)

    def make_bucket(self) -> None:
        files = self.files()
        if files.exists(BUCKET):
            self.allow()
            files.rm(BUCKET, recursive=True)
        files.mkdir(BUCKET)
        self.puts.clear()

    def deny(self, action: str) -> None:
        """Deny an action, such as ``s3:PutObject``, on all objects."""
        statement = {"Effect": "Deny", "Principal": "*", "Action": action}
        statement["Resource"] = f"arn:aws:s3:::{BUCKET}/*"
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.files().call_s3("put_bucket_policy", Bucket=BUCKET, Policy=policy)

    def allow(self) -> None:
        self.files().call_s3("delete_bucket_policy", Bucket=BUCKET)


@pytest.fixture(scope="module")
def server() -> Any:
    """Run a server, and set the environment of this process for it."""
    before = dict(os.environ)
    one = S3Server()
    os.environ.update(one.environment)
    yield one
    one.takes.set()
    one.stop()
    os.environ.clear()
    os.environ.update(before)
