"""The op families; importing this package fills the registry."""

from . import structure  # noqa: F401
