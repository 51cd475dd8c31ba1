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
    asked : list
        Path of every request.
    delay : float
        Seconds before each answer.
    most_at_once : int
        Largest number of requests that were answered at the same time.
    """

    folder: Path
    address: str = ""
    drops: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    asked: list[str] = field(default_factory=list)
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
            path = unquote(self.path)
            about.asked.append(path)
            file = about.folder / path.lstrip("/")
            code = about.answers[path].pop(0) if about.answers[path] else (200 if file.is_file() else 404)
            data = file.read_bytes() if code == 200 else b""
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if about.drops[path] and self.command == "GET":
                data = data[: about.drops[path].pop(0)]
                self.close_connection = True
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

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
