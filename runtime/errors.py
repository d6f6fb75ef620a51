"""What can go wrong at run time: one class, and narrower ones for callers that tell them apart."""

from __future__ import annotations


class LaminaRuntimeError(RuntimeError):
    """A call that cannot be made or that failed. The message names the input, what was expected and the way out."""


class LaminaIndexError(LaminaRuntimeError, IndexError):
    """An index computed from the inputs is outside its tensor; also an IndexError, as in eager torch."""


class ArtifactError(LaminaRuntimeError):
    """A file that is not a usable artifact: foreign, damaged, newer, or without code for this machine."""


class DeviceError(LaminaRuntimeError):
    """A GPU, or its driver, cannot do what was asked; `code` is the driver's number for it, 0 if it was not asked."""

    def __init__(self, message: str, code: int = 0):
        super().__init__(message)
        self.code = code


class NoDeviceError(DeviceError):
    """There is no driver here, or no such device."""


class OldDriverError(DeviceError):
    """The driver lacks something that a newer one has."""


class WrongDeviceError(DeviceError):
    """Code for another architecture than the device's, or an input on another device."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The device has no memory left."""
