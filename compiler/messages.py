"""Messages between the user's process and its workers: a JSON header and any number of byte strings, no pickle.

On the wire: two little-endian u32 (bytes of the header, number of blobs), a u64 per blob, the header, the blobs.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

_HEAD = struct.Struct("<II")

FORK, FORK_GPU = b"f", b"g"  # what the zygote is asked for, with the descriptors of a worker's socket and log


class Message(NamedTuple):
    """A header of plain data and blobs."""

    header: dict[str, Any]
    blobs: Sequence[bytes] = ()


class Closed(ConnectionError):
    """The other end is gone."""


def send(sock: socket.socket, message: Message) -> None:
    """Send one message; `Closed` if nobody is there to read it."""
    header = json.dumps(message.header).encode()
    sizes = b"".join(struct.pack("<Q", len(b)) for b in message.blobs)
    try:
        sock.sendall(b"".join((_HEAD.pack(len(header), len(message.blobs)), sizes, header, *message.blobs)))
    except (BrokenPipeError, ConnectionError) as error:
        raise Closed(str(error)) from None


def receive(sock: socket.socket) -> Message:
    """Wait for one message; `Closed` if the other end is gone first."""
    header_size, count = _HEAD.unpack(_exactly(sock, _HEAD.size))
    sizes = struct.unpack(f"<{count}Q", _exactly(sock, 8 * count))
    header = json.loads(_exactly(sock, header_size))
    return Message(header, tuple(_exactly(sock, n) for n in sizes))


def _exactly(sock: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view, got = memoryview(buffer), 0
    while got < size:
        try:
            n = sock.recv_into(view[got:])
        except ConnectionError as error:
            raise Closed(str(error)) from None
        if not n:
            raise Closed("the other end was closed")
        got += n
    return bytes(buffer)
