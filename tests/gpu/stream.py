"""A stream of known bytes through a board's memory, by the CUDA driver's library alone."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from tokenwatt_site.errors import EnvironmentProblem

BUFFER_BYTES = 4 << 30
_PERIOD_S = 0.02

Kind = Literal["write", "copy"]


class Stream:
    """Two buffers on one board; `moved_bytes` counts what was read and written so far."""

    def __init__(self, pci: str) -> None:
        """Make a context on the board with this bus id.

        Raises:
            EnvironmentProblem: no CUDA driver, or no room on the board.
        """
        try:
            self._cuda: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise EnvironmentProblem("libcuda.so.1 is not here: no CUDA driver") from error
        self.moved_bytes = 0
        self._device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGetByPCIBusId", ctypes.byref(self._device), pci.encode())
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self._call("cuCtxSetCurrent", self._context)
        self._buffers = (ctypes.c_uint64(), ctypes.c_uint64())
        for buffer in self._buffers:
            self._call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(BUFFER_BYTES))

    def close(self) -> None:
        for buffer in self._buffers:
            self._call("cuMemFree_v2", buffer)
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    @contextmanager
    def running(self, kind: Kind, duty: float = 1.0) -> Iterator[None]:
        """Stream in a thread until left, for the share `duty` of the time."""
        stop = threading.Event()
        failed: list[Exception] = []
        thread = threading.Thread(target=self._run, args=(kind, duty, stop, failed), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failed:
            raise failed[0]

    def _run(self, kind: Kind, duty: float, stop: threading.Event, failed: list[Exception]) -> None:
        try:
            self._call("cuCtxSetCurrent", self._context)
            while not stop.is_set():
                start = time.monotonic()
                while time.monotonic() - start < _PERIOD_S * duty:
                    self._once(kind)
                if duty < 1:
                    # As long as the share wants, whatever the last pass overran.
                    busy_s = time.monotonic() - start
                    time.sleep(busy_s * (1 - duty) / duty)
        except EnvironmentProblem as error:
            failed.append(error)

    def _once(self, kind: Kind) -> None:
        into, source = self._buffers
        if kind == "write":
            words = ctypes.c_size_t(BUFFER_BYTES // 4)
            self._call("cuMemsetD32_v2", into, ctypes.c_uint(0x5A5A5A5A), words)
        else:
            self._call("cuMemcpyDtoD_v2", into, source, ctypes.c_size_t(BUFFER_BYTES))
        self._call("cuCtxSynchronize")
        self.moved_bytes += BUFFER_BYTES * (1 if kind == "write" else 2)

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise EnvironmentProblem(f"{name}: {(text.value or b'unknown error').decode()}")
