"""A server on the loopback interface that serves a folder, and misbehaves as it is told."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


@dataclass
class FileServer:
    """What is served, how it misbehaves, and what was asked.

    Attributes
    ----------
    folder : Path
    drops : dict
        Path to how many bytes each answer sends before the connection breaks; a list, one entry an answer.
    answers : dict
        Path to status codes sent in place of the file; a list, one entry an answer.
    headers : dict
        Headers sent with these status codes.
    ranges : bool
        Whether ``Range`` is honoured.
    etags : dict
        Path to the mark of the file's version; default: its size.
    asked : list
        (path, Range header) of every request.
    delay : float
        Seconds before each answer.
    most_at_once : int
        Largest number of requests that were answered at the same time.
    """

    folder: Path
    address: str = ""
    drops: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    headers: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    etags: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    delay: float = 0.0
    most_at_once: int = 0
    at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serve(folder: Path, delay: float = 0.0) -> Iterator[FileServer]:
    """Serve `folder` at `.address` until the block ends."""
    about = FileServer(folder, delay=delay)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with about.lock:
                about.at_once += 1
                about.most_at_once = max(about.most_at_once, about.at_once)
            if about.delay:  # tests that count pauses patch `sleep`
                time.sleep(about.delay)
            try:
                self.answer()
            finally:
                with about.lock:
                    about.at_once -= 1

        def answer(self) -> None:
            path, wanted = unquote(self.path), self.headers.get("Range")
            about.asked.append((path, wanted))
            file = about.folder / path.lstrip("/")
            code = about.answers[path].pop(0) if about.answers[path] else (200 if file.is_file() else 404)
            if code != 200:
                return self.send_error(code)
            data = file.read_bytes()
            etag = about.etags.get(path, f'"{len(data)}"')
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and about.ranges else 0
            start = start if etag in (self.headers.get("If-Range"), self.headers.get("If-Match")) else 0
            if start and start >= len(data):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.send_header("ETag", etag)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            drops = about.drops[path]
            if drops:
                self.wfile.write(data[start : start + drops.pop(0)])
                self.close_connection = True
                return None
            return self.wfile.write(data[start:]) and None

        def send_error(self, code: int, *args: object) -> None:
            self.send_response(code)
            for name, value in about.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    server = Server(("127.0.0.1", 0), Handler)
    about.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield about
    finally:
        server.shutdown()
        server.server_close()
