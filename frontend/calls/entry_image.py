"""The machine code of native entries, compiled in the background while torch traces the first graph."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future

from ...compiler.api import compile_llvm


@functools.cache
def entry_image(code: Callable[[], str], name: str) -> Future[bytes]:
    """The shared object with the entry whose LLVM IR is `code()`, begun at the first call; its error is CompileError."""
    image: Future[bytes] = Future()

    def work() -> None:
        try:
            image.set_result(compile_llvm(code(), ["lamina_entry"], name=name))
        except BaseException as error:
            image.set_exception(error)

    threading.Thread(target=work, name=f"lamina-{name}", daemon=True).start()
    return image


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=entry_image.cache_clear)  # the thread is not in the child
