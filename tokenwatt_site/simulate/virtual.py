"""The engine in virtual time: what it would do, computed at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tokenwatt_site.simulate.engine import Engine, Generation, Request, Step


@dataclass(frozen=True, slots=True)
class Timeline:
    """When the engine worked on a request: admission and each of its tokens."""

    admitted_ns: int
    cached_tokens: int
    tokens_ns: tuple[int, ...]


def play(
    engine: Engine,
    requests: Iterable[Request],
    watch: Callable[[Step], None] = lambda _: None,
) -> dict[int, Timeline]:
    """Answer `requests`, given in the order of arrival, and return their timelines by number.

    `watch` sees each step after its begin.

    Raises:
        ValueError: see `Engine.submit`.
    """
    generations = [engine.submit(request) for request in requests]
    tokens_ns: dict[int, list[int]] = {g.request.number: [] for g in generations}
    free_ns = 0
    while (start_ns := engine.next_start_ns(free_ns)) is not None:
        step = engine.begin(start_ns)
        watch(step)
        for generation in engine.end():
            tokens_ns[generation.request.number].append(step.end_ns)
        free_ns = step.end_ns
    return {g.request.number: _timeline(g, tokens_ns[g.request.number]) for g in generations}


def _timeline(generation: Generation, tokens_ns: list[int]) -> Timeline:
    admitted_ns = generation.admitted_ns
    assert admitted_ns is not None  # noqa: S101 - all that were queued have ended
    return Timeline(admitted_ns, generation.cached_tokens, tuple(tokens_ns))
