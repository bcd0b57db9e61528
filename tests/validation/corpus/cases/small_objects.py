"""A Zarr array of small chunks on a web server, read through obstore."""

import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import dask.array as da
import numpy as np
import zarr
from distributed import Client
from obstore.store import HTTPStore
from zarr.storage import ObjectStore

TIMES = 16 if "--remedy" in sys.argv else 1


class Slow(BaseHTTPRequestHandler):
    """A server of files that answers after 30 ms, with 100 MB/s."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path, wanted = Path(self.path), self.headers["Range"]
        size, code = (path.stat().st_size, 200) if path.is_file() else (0, 404)
        begin, end = 0, size
        if wanted and code == 200:
            first, last = wanted.removeprefix("bytes=").split("-")
            begin, end, code = int(first), min(int(last or size) + 1, size), 206
        time.sleep(0.03 + (end - begin) / 100e6)
        self.send_response(code)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT")
        if code == 206:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        self.end_headers()
        if self.command == "GET" and end > begin:
            with path.open("rb") as file:
                file.seek(begin)
                self.wfile.write(file.read(end - begin))

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def serve():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        stored = zarr.create_array(
            path, shape=(256, 20_000), chunks=(1, 20_000), dtype="f4", compressors=None
        )
        stored[:] = np.random.default_rng(0).normal(size=stored.shape)
        store = HTTPStore(serve() + path, client_options={"allow_http": True})
        array = zarr.open_array(ObjectStore(store, read_only=True), mode="r")
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            print(round(float(da.from_array(array, chunks=(TIMES, 20_000)).std().compute()), 4))
