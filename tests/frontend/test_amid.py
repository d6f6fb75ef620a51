"""Finalizers and handlers of signals may count and compile amid what counts and compiles, and children may be forked."""

import os
import signal
import threading

import pytest
from support.amid import amid
from support.hang import HANG

import lamina
from lamina.compiler import pool
from lamina.dialects.record import Location
from lamina.frontend.stats import Counters

pytestmark = pytest.mark.timeout(300)  # a deadlock is a failure


def test_counters_are_read_and_written_amid_counting():
    counters = Counters()

    def count():
        counters.add("graphs")
        counters.fallback("aten.x", "no converter", Location("model.py", len(counters.snapshot()), "x"))

    with amid(count) as done:
        for _ in range(30):
            count()
    found = counters.snapshot()
    assert found["graphs"] == found["fallback"]["aten.x"]["count"] == 30 + len(done)


def test_the_pool_is_asked_for_amid_its_making(monkeypatch):
    inner = []

    class Pool(pool.Pool):
        def __init__(self, size):
            super().__init__(size)
            if not inner:
                inner.append(self)
                inner.append(pool.pool())  # as a finalizer would that runs here

    monkeypatch.setattr(pool, "Pool", Pool)
    monkeypatch.setattr(pool, "_holder", pool._Holder())
    assert pool.pool() is pool.pool() and len(inner) == 2


def test_a_child_forked_while_another_thread_counts_can_count():
    from lamina.frontend.stats import COUNTERS

    held, free = threading.Event(), threading.Event()

    def hold():
        with COUNTERS._lock:
            held.set()
            free.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(HANG)  # a hang ends the child with a signal, which fails the test
            os._exit(7 if "graphs" in lamina.stats() else 1)
        finally:
            os._exit(1)
    free.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
