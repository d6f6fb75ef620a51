"""Kernels that may begin while the launch before them ends: what their PTX must hold (`lamina-overlap-launches`)."""

import re

_GLOBAL = re.compile(
    r"^\s*(@!?%p\d+ )?(ld|st|atom|red|cp(?!\.async\.bulk\.prefetch\.L2)|tensormap|multimem)\b(?!\S*\.(param|shared|local|const)\b)"
)


def assert_waits(ptx: str) -> None:
    """Each kernel waits, on every path, before it reads or writes global memory; only tables are read as constant."""
    entries = re.findall(r"\.entry (\w+)\((.*?)^}", ptx, re.S | re.M)
    tables = re.search(r"^\.global .* = {", ptx, re.M)
    assert entries and (tables or "ld.global.nc" not in ptx)
    for name, body in entries:
        before, wait, after = body.partition("griddepcontrol.wait;")
        assert wait and "griddepcontrol.wait;" not in after, name
        assert "griddepcontrol.launch_dependents;" in after and "launch_dependents" not in before, name
        assert "ret;" not in before.split(), f"{name} ends before the wait"
        lines = before.splitlines()
        assert not [line for line in lines if _GLOBAL.match(line)], name
        targets = set(re.findall(r"\bbra(?:\.uni)?\s+(\$\w+)", before))
        assert targets <= set(re.findall(r"^(\$\w+):", before, re.M)), f"{name} jumps over the wait"
