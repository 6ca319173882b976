"""A clock that goes on only while the main thread pauses, as fast as all other threads follow."""

from __future__ import annotations

import threading


class VirtualClock:
    """Stands in for `measure.clock.RunClock`.

    Every thread that ever asked for the time is waited for until it waits itself, so that whatever
    is due happens at its own time and in its own order.
    """

    def __init__(self) -> None:
        self._ns = 0
        self._changed = threading.Condition()
        self._waiting: dict[threading.Event, int] = {}
        self._main = threading.current_thread()
        self._threads: set[threading.Thread] = set()

    def now_ns(self) -> int:
        if (thread := threading.current_thread()) is not self._main:
            self._threads.add(thread)
        return self._ns

    def pause(self, seconds: float) -> None:
        """Advance, and stop on the way wherever a thread waits for."""
        end_ns = self._ns + round(seconds * 1e9)
        with self._changed:
            while True:
                self._await_all()
                due_ns = min([end_ns, *self._waiting.values()])
                self._ns = max(self._ns, due_ns)
                self._changed.notify_all()
                if self._ns >= end_ns:
                    self._await_all()
                    return

    def wait(self, bell: threading.Event, seconds: float) -> None:
        with self._changed:
            self._waiting[bell] = self._ns + round(seconds * 1e9)
            self._changed.notify_all()
            self._changed.wait_for(lambda: bell.is_set() or self._ns >= self._waiting[bell])
            del self._waiting[bell]

    def ring(self, bell: threading.Event) -> None:
        with self._changed:
            bell.set()
            self._changed.notify_all()

    def _await_all(self) -> None:
        """Wait until every other thread waits for a time that is ahead, undisturbed."""

        def all_wait() -> bool:
            threads = [thread for thread in tuple(self._threads) if thread.is_alive()]
            ahead = [b for b, ns in self._waiting.items() if ns > self._ns and not b.is_set()]
            return len(ahead) >= len(threads)

        if not self._changed.wait_for(all_wait, timeout=10):
            raise AssertionError("a thread does not wait")
