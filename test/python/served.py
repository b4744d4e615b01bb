"""A folder behind a local http server, for tests of downloads."""

import contextlib
import functools
import http.server
import threading


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Quiet; with `cut` every answer breaks off after so many bytes, and `ranges` says whether parts may be asked for."""

    def __init__(self, *args, cut=None, ranges=True, asked=None, **kwargs):
        self.cut, self.ranges, self.asked = cut, ranges, asked
        super().__init__(*args, **kwargs)

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.asked.append((self.path, self.headers.get("Range")))
        if self.cut is None:
            return super().do_GET()
        with open(self.translate_path(self.path), "rb") as file:
            data = file.read()
        start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-")) if self.ranges and "Range" in self.headers else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:start + self.cut])
        self.wfile.flush()
        self.close_connection = True


@contextlib.contextmanager
def serving(folder, cut=None, ranges=True):
    """(address of a server of the folder, list of what is asked for: (path, range or None))"""
    asked: list = []
    handler = functools.partial(_Handler, directory=str(folder), cut=cut, ranges=ranges, asked=asked)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
