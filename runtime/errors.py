"""What can go wrong at run time: one class, and two narrower ones for callers that tell them apart."""

from __future__ import annotations


class LaminaRuntimeError(RuntimeError):
    """A call that cannot be made or that failed. The message names the input, what was expected and the way out."""


class LaminaIndexError(LaminaRuntimeError, IndexError):
    """An index computed from the inputs is outside its tensor; also an IndexError, as in eager torch."""


class ArtifactError(LaminaRuntimeError):
    """A file that is not a usable artifact: foreign, damaged, newer, or without code for this machine."""
