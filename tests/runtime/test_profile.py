"""Launches are counted and timed while a profile is on."""

import numpy as np

from lamina.runtime.call import Caller
from lamina.runtime.program import LoadedProgram
from lamina.tools.profile import profile

from .conftest import Function


def test_profile(compiled):
    f = Function()
    x = f.input("x")
    caller = Caller(LoadedProgram(*compiled(f, [("y", f.call("add", f.call("twice", x), x), "")])))
    x = np.ones(100, np.float32)
    with profile(caller.program) as launches:
        for _ in range(2):
            caller.call(None, x)
    caller.call(None, x)
    assert [(t.label, t.location, t.calls) for t in launches] == [
        ("twice", "model.py:10", 2),
        ("add", "model.py:11", 2),
    ]
    assert all(0 < t.seconds < 1 for t in launches)
