"""Small pieces of a large HDF5 file on a web server, read in blocks of 16 MB."""

import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import h5py
import numpy as np
from distributed import Client

BLOCK = 2**18 if "--remedy" in sys.argv else 2**24


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


def series(url, point, block):
    with fsspec.open(url, block_size=block) as file, h5py.File(file) as stored:
        return float(stored["t"][::500, point].mean())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/data.h5"
        with h5py.File(path, "w") as file:
            t = file.create_dataset("t", (2000, 6000), "f8", chunks=(20, 300))
            t[:] = np.random.default_rng(0).normal(size=t.shape)
        url = serve() + path
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
            means = client.map(series, [url] * 20, range(0, 6000, 300), [BLOCK] * 20)
            print(round(sum(client.gather(means)), 5))
