"""HDF5 files on a web server, read through fsspec with its default cache."""

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

OPTIONS = {"cache_type": "blockcache", "block_size": 2**21} if "--remedy" in sys.argv else {}


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


def mean(url, name, options):
    with fsspec.open(url, **options) as file, h5py.File(file) as stored:
        return float(stored[f"months/{name}"][:].mean())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/data.h5"
        with h5py.File(path, "w") as file:
            for n in range(32):
                values = np.random.default_rng(n).normal(size=(60, 50, 50)).astype("f4")
                file.create_dataset(
                    f"months/{n}",
                    data=values,
                    chunks=(10, 50, 50),
                    compression="gzip",
                    compression_opts=1,
                )
        url = serve() + path
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
            means = client.map(mean, [url] * 32, range(32), [OPTIONS] * 32)
            print(round(sum(client.gather(means)), 5))
