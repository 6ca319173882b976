from __future__ import annotations

import threading
import time

from tokenwatt_site.measure.clock import RunClock


def test_the_clock_of_a_run_counts_from_its_opening() -> None:
    clock = RunClock(time.monotonic_ns() - 5)

    assert clock.now_ns() >= 5
    clock.pause(0)
    assert clock.now_ns() < 60_000_000_000


def test_a_bell_that_rang_before_ends_the_wait_at_once() -> None:
    clock, bell = RunClock(0), threading.Event()
    clock.ring(bell)
    before_ns = clock.now_ns()

    clock.wait(bell, 3600)

    assert clock.now_ns() - before_ns < 3600 * 1_000_000_000
