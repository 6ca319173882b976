"""The scheduler of `simulate.engine` once more, slow and plain: blocks are places with content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

BLOCK = 16
OUTPUT = 0


@dataclass
class Place:
    """A block in memory; `content` is the whole prefix up to its end, once it is full."""

    content: tuple[int, ...] | None = None
    users: int = 0
    freed: int = 0


@dataclass
class Naive:
    """One request. `places` are its blocks in order."""

    number: int
    prompt: tuple[int, ...]
    wanted: int
    arrival: int
    tokens: list[int] = field(default_factory=list)
    computed: int = 0
    places: list[Place] = field(default_factory=list)
    admitted: int | None = None
    cached: int = 0
    times: list[int] = field(default_factory=list)


class Memory:
    def __init__(self, blocks: int) -> None:
        self.places = [Place() for _ in range(blocks)]
        self.clock = 0

    def find(self, content: tuple[int, ...]) -> Place | None:
        return next((p for p in self.places if p.content == content), None)

    def free(self) -> list[Place]:
        """Unused places, those to be taken first at the front."""
        unused = [p for p in self.places if not p.users]
        return sorted(unused, key=lambda p: (p.content is not None, p.freed))

    def prefix(self, tokens: list[int]) -> list[Place]:
        """Return the blocks of the longest prefix in memory, but for the last token."""
        found = list[Place]()
        while (end := BLOCK * (len(found) + 1)) < len(tokens):
            place = self.find(tuple(tokens[:end]))
            if place is None:
                break
            found.append(place)
        return found

    def hold(self, request: Naive, count: int) -> None:
        for place in self.free()[:count]:
            place.users, place.content = 1, None
            request.places.append(place)

    def fill(self, request: Naive) -> None:
        """Note what is in the blocks that are full, where no other has the same."""
        for index in range(request.computed // BLOCK):
            content = tuple(request.tokens[: BLOCK * (index + 1)])
            if request.places[index].content is None and self.find(content) is None:
                request.places[index].content = content

    def let_go(self, request: Naive) -> None:
        for place in reversed(request.places):
            place.users -= 1
            if not place.users:
                self.clock += 1
                place.freed = self.clock
        request.places, request.computed = [], 0


@dataclass
class Scheduler:
    """The queue, the batch and the memory; `work` is the step in progress."""

    memory: Memory
    max_batch: int
    token_budget: int
    waiting: list[Naive]
    running: list[Naive] = field(default_factory=list)
    work: list[tuple[Naive, int]] = field(default_factory=list)

    def step(self, now: int) -> None:
        """Choose who gets how many tokens."""
        self.work = []
        left, put_back = self.token_budget, False
        for request in list(self.running):
            if request not in self.running:
                continue
            chunk = min(len(request.tokens) - request.computed, left)
            needed = -(-(request.computed + chunk) // BLOCK) - len(request.places)
            while request in self.running and len(self.memory.free()) < needed:
                newest = self.running.pop()
                self.memory.let_go(newest)
                self.waiting.insert(0, newest)
                put_back = True
            if request in self.running:
                self.memory.hold(request, needed)
                self.work.append((request, chunk))
                left -= chunk
        while not put_back and left and len(self.running) < self.max_batch:
            chunk = self.admit(now, left)
            if not chunk:
                break
            left -= chunk

    def admit(self, now: int, left: int) -> int:
        """Admit the first in the queue; return its tokens, or 0 where it has to wait."""
        if not self.waiting or self.waiting[0].arrival > now:
            return 0
        request = self.waiting[0]
        found = self.memory.prefix(request.tokens)
        cached = BLOCK * len(found)
        chunk = min(len(request.tokens) - cached, left)
        needed = -(-(cached + chunk) // BLOCK) - len(found)
        if sum(all(place is not f for f in found) for place in self.memory.free()) < needed:
            return 0
        for place in found:
            place.users += 1
        request.places, request.computed = found, cached
        self.memory.hold(request, needed)
        self.running.append(self.waiting.pop(0))
        self.work.append((request, chunk))
        if request.admitted is None:
            request.admitted, request.cached = now, cached
        return chunk

    def end(self, now: int) -> None:
        for request, chunk in self.work:
            request.computed += chunk
            self.memory.fill(request)
            if request.computed == len(request.tokens):
                request.tokens.append(OUTPUT)
                request.times.append(now)
            if len(request.times) == request.wanted:
                self.running.remove(request)
                self.memory.let_go(request)


def serve(
    requests: Sequence[tuple[tuple[int, ...], int, int]],
    *,
    max_batch: int,
    token_budget: int,
    kv_tokens: int,
    step_ns: Callable[[int, int, int], int],
) -> list[Naive]:
    """Answer (prompt, output tokens, arrival) in order; return each with all its times."""
    every = [Naive(n, *request) for n, request in enumerate(requests)]
    for request in every:
        request.tokens = list(request.prompt)
    scheduler = Scheduler(Memory(kv_tokens // BLOCK), max_batch, token_budget, list(every))
    now = 0
    while scheduler.waiting or scheduler.running:
        if not scheduler.running:
            now = max(now, scheduler.waiting[0].arrival)
        scheduler.step(now)
        tokens = read = pairs = 0
        for request, chunk in scheduler.work:
            tokens += chunk
            read += request.computed + chunk
            pairs += sum(range(request.computed + 1, request.computed + chunk + 1))
        now += step_ns(tokens, read, pairs)
        scheduler.end(now)
    return every
