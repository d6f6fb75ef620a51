"""How long a test waits for a process before it says that it hangs: longer than a loaded machine needs for any of ours."""

HANG = 600  # seconds
