"""The op families; importing this package fills the registry."""
