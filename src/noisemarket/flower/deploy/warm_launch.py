"""Stands in for a command of Flower: has the warm server run it, and waits for its end.

Flower starts an app by the name of its command. ``warm_apps`` puts this one first on the path under
that name. It runs as ``python -I -S`` on this file alone and imports next to nothing, since it runs
for every message. What the server says comes in bytes: one when the command has started, and at its
end its exit code. The server ends the command when this process is gone; a signal to end is passed
on. Where no server answers the command itself is run instead, from scratch.
"""

import json
import os
import signal
import socket
import sys

STARTED = b"+"


def launch(address: str, words: list[str]) -> socket.socket:
    """Have the command run with this process's folder, variables, input and output."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(address)
    asked = {"words": words, "folder": os.getcwd(), "variables": dict(os.environ)}  # noqa: PTH109
    text = json.dumps(asked).encode()
    socket.send_fds(line, [len(text).to_bytes(4, "big")], [0, 1, 2])
    line.sendall(text)
    if line.recv(1) != STARTED:
        raise OSError("the server cannot start it")
    return line


def main() -> int:
    """Run the command; gives its exit code."""
    address, command, *words = sys.argv[1:]
    ending = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    try:
        line = launch(address, [command.rpartition("/")[2], *words])
    except OSError as problem:
        name = command.rpartition("/")[2]
        print(f"{name} has no warm start ({problem}); it starts from scratch.", file=sys.stderr)
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
        os.execv(command, [command, *words])
    for number in ending:
        signal.signal(number, lambda given, _: line.sendall(bytes([given])))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
    code = line.recv(1)
    return code[0] if code else 1


if __name__ == "__main__":
    sys.exit(main())
