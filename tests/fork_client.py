"""Ask the server of `tests.forks` for a process with this one's folder, environment and streams; end as it ends."""

import json
import os
import socket
import sys


def main(address: str, *arguments: str) -> int:
    """Return the exit status of the process."""
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    text = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(text).to_bytes(8, "big")], [0, 1, 2])
        connection.sendall(text)
        status = int(connection.recv(8) or 1)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
