"""A web server that answers requests for files after 30 ms, with 100 MB/s."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Slow(BaseHTTPRequestHandler):
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
