"""Arrays that work on a device may still read: their owners must not reuse the memory before that work is done.

An array of the stream that reads it needs none of this: its memory is freed in the stream's order.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections import deque
from typing import Any

from .drivers import Device

_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING and hipEventDisableTiming


class _Event:
    """A point in a stream's work."""

    def __init__(self, device: Device, stream: int):
        self._device, self._handle = device, ctypes.c_void_p()
        with device.use():
            device.call("making an event", "EventCreate", ctypes.byref(self._handle), _NO_TIMING)
            device.call("recording an event", "EventRecord", self._handle, ctypes.c_void_p(stream))

    def passed(self) -> bool:
        """True once the device has come there."""
        return self._device.driver_function("EventQuery")(self._handle) == 0

    def wait(self) -> None:
        """Wait until it has."""
        with self._device.use():
            self._device.driver_function("EventSynchronize")(self._handle)

    def __del__(self) -> None:
        try:
            if self._handle:
                self._device.driver_function("EventDestroy_v2")(self._handle)
        except Exception:  # the process is ending
            pass


class Pending:
    """What enqueued work reads, in the order in which it was enqueued. Any thread may call, and what goes may."""

    def __init__(self, device: Device):
        self._device = device
        self._kept: deque[tuple[_Event, Any]] = deque()
        # not `__del__`: in a cycle, and when the process ends, that may come after the events' own
        weakref.finalize(self, _finish, self._kept)

    def keep(self, owners: Any, stream: int) -> None:
        """Keep `owners` until what has been enqueued on `stream` is done."""
        self._kept.append((_Event(self._device, stream), owners))

    def drop(self) -> None:
        """Let go of what is not read any more."""
        with contextlib.suppress(IndexError):  # all are gone
            while (first := self._kept.popleft())[0].passed():
                pass
            self._kept.appendleft(first)


def _finish(kept: deque[tuple[_Event, Any]]) -> None:
    """Wait for every reader, then let go of what it read."""
    while kept:
        with contextlib.suppress(Exception):  # the driver has ended
            kept[0][0].wait()
        kept.popleft()
