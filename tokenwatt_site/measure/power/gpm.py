"""Memory traffic of NVIDIA boards, Hopper and later, by NVML's GPM counters.

Metric 10 is the use of the memory in percent of what the bus can carry, reads and writes of all
processes, as the mean between two samples. It takes no lock: a profiler beside it changes nothing.
A board that is split (MIG) has no such samples as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenwatt_site.evidence.power import DramSpan
from tokenwatt_site.measure.power.binding import Nvml

LEAST_NS = 200_000_000
"""Samples nearer to each other say nothing: 100 ms is a hard limit of Hopper (NVIDIA/DCGM#310)."""

_DRAM_BW_UTIL = 10  # NVML_GPM_METRIC_DRAM_BW_UTIL


@dataclass(frozen=True, slots=True)
class _Taken:
    at_ns: int
    sample: Any


class Traffic:
    """Counts the memory traffic of `handles`; boards without GPM have none."""

    def __init__(self, nvml: Nvml, handles: Sequence[object]) -> None:
        self._nvml = nvml
        self._handles = [
            handle
            if (support := nvml.ask("nvmlGpmQueryDeviceSupport", handle))
            and support.isSupportedDevice
            else None
            for handle in handles
        ]
        self._latest: dict[int, _Taken] = {}
        self._begun: list[tuple[tuple[int, _Taken], ...]] = []

    def since_last(self, board: int, now_ns: Callable[[], int]) -> int | None:
        """Return the mean use since the call before, in ppm; None: none, or too near to it."""
        before = self._latest.pop(board, None)
        after = self._take(board, now_ns)
        if after is not None:
            self._latest[board] = after
        used = None
        if before is not None and after is not None:
            used = self._between_ppm(before, after)
        self._free(before)
        return used

    def begin(self, now_ns: Callable[[], int]) -> object:
        """Take the first of a pair of every board that can."""
        taken = ((board, self._take(board, now_ns)) for board in range(len(self._handles)))
        begun = tuple((board, one) for board, one in taken if one is not None)
        self._begun.append(begun)
        return begun

    def end(self, begun: object, now_ns: Callable[[], int]) -> tuple[DramSpan, ...]:
        """Take the second of each, and return the means between."""
        at = next(n for n, open_pairs in enumerate(self._begun) if open_pairs is begun)
        spans = []
        for board, before in self._begun.pop(at):
            after = self._take(board, now_ns)
            used = None if after is None else self._between_ppm(before, after)
            if after is not None and used is not None:
                spans.append(
                    DramSpan(board=board, start_ns=before.at_ns, end_ns=after.at_ns, ppm=used)
                )
            self._free(before)
            self._free(after)
        return tuple(spans)

    def close(self) -> None:
        """Free what is still held."""
        for begun in self._begun:
            for _, taken in begun:
                self._free(taken)
        for taken in self._latest.values():
            self._free(taken)
        self._begun, self._latest = [], {}

    def _take(self, board: int, now_ns: Callable[[], int]) -> _Taken | None:
        handle = self._handles[board]
        if handle is None or (sample := self._nvml.ask("nvmlGpmSampleAlloc")) is None:
            return None
        before_ns = now_ns()
        if self._nvml.ask("nvmlGpmSampleGet", handle, sample) is None:
            self._nvml.ask("nvmlGpmSampleFree", sample)
            return None
        return _Taken((before_ns + now_ns()) // 2, sample)

    def _between_ppm(self, before: _Taken, after: _Taken) -> int | None:
        if after.at_ns - before.at_ns < LEAST_NS:
            return None
        module = self._nvml.module
        asked = module.c_nvmlGpmMetricsGet_t()
        asked.version = module.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = 1
        asked.sample1, asked.sample2 = before.sample, after.sample
        asked.metrics[0].metricId = _DRAM_BW_UTIL
        got = self._nvml.ask("nvmlGpmMetricsGet", asked)
        # The metric carries its own verdict: without it an unsupported one reads as 0%.
        if got is None or got.metrics[0].nvmlReturn != module.NVML_SUCCESS:
            return None
        percent = got.metrics[0].value
        # More than all of the bus is kept: that is for whoever judges the result to see.
        return round(percent * 10_000) if math.isfinite(percent) and percent >= 0 else None

    def _free(self, taken: _Taken | None) -> None:
        if taken is not None:
            self._nvml.ask("nvmlGpmSampleFree", taken.sample)
