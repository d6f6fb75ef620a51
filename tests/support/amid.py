"""What a finalizer may do to us: run any code in the middle of any other.

with amid(lambda: model(x)):     # at every collection, and one comes with nearly every container that is made
    model(y)
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def amid(work: Callable[[], Any]) -> Iterator[list[BaseException | None]]:
    """Do `work` whenever the collector starts, as a finalizer would, until it fails.

    Yields a list of what came of each time: None, or the error, which may be that of a test's time limit.
    """
    outcomes: list[BaseException | None] = []

    def callback(phase: str, _info: Any) -> None:
        if phase == "start" and not any(outcomes):
            try:
                work()
                outcomes.append(None)
            except BaseException as error:
                outcomes.append(error)

    threshold = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    try:
        yield outcomes
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)
    assert outcomes and not any(outcomes), [str(o) for o in outcomes if o][:3]
