"""Continuous batching without a clock: requests with times in, steps with times out.

The rules are those of vLLM's scheduler. A step computes one token for every running answer, then
chunks of prompts, up to a budget of tokens. Requests are admitted in the order of arrival while
there is room for their first chunk. Where an answer cannot grow, the newest is put back to the head
of the queue and computed again. Two phases, `begin` and `end`, so that what happens between them in
real time finds the engine as it is then.

Times are integers, in ns of any clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.simulate.blocks import BLOCK_TOKENS, BlockPool, blocks_for, chain, extend
from tokenwatt_site.simulate.roofline import Roofline

OUTPUT_TOKEN = 0
"""The id of every token that is made."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a scheduler may do at once. One sequence of `max_model_len` always fits.

    Attributes:
        max_batch: sequences in a step.
        token_budget: tokens computed in a step.
        kv_tokens: tokens whose KV is in memory; whole blocks of them are used.
        max_model_len: tokens of one sequence, prompt and answer together.
    """

    max_batch: int
    token_budget: int
    kv_tokens: int
    max_model_len: int

    def __post_init__(self) -> None:
        rows = (
            ("--max-batch", self.max_batch, 1, "1 or more"),
            ("--max-model-len", self.max_model_len, 2, "2 or more: a prompt and an answer"),
            (
                "--token-budget",
                self.token_budget,
                self.max_batch,
                f"at least {self.max_batch}, a token for each sequence of --max-batch",
            ),
            (
                "--kv-tokens",
                self.kv_tokens // BLOCK_TOKENS * BLOCK_TOKENS,
                self.max_model_len,
                f"{self.max_model_len} in whole blocks, for one sequence of --max-model-len",
            ),
        )
        problems = [
            Problem("is too small", field=name, found=str(found), expected=expected)
            for name, found, least, expected in rows
            if found < least
        ]
        if problems:
            raise UsageError(*problems)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: `output_tokens` exactly, at least one, after a prompt of at least one."""

    number: int
    prompt: tuple[int, ...]
    output_tokens: int
    arrival_ns: int


@dataclass(slots=True, eq=False)
class Generation:
    """One request in the engine. Others read it; only the engine changes it.

    Attributes:
        request: what is asked.
        admitted_ns: begin of the first step that worked on it.
        cached_tokens: prompt tokens that were found in memory when it was first admitted.
        made: tokens so far.
        first_ns: end of the step that made the first one.
        latest_ns: end of the step that made the latest one.
        previous_ns: the same of the one before.
        preemptions: how often it was put back.
    """

    request: Request
    admitted_ns: int | None = None
    cached_tokens: int = 0
    made: int = 0
    first_ns: int | None = None
    latest_ns: int | None = None
    previous_ns: int | None = None
    preemptions: int = 0
    _computed: int = 0
    _own: int = 0
    _shared: list[int] = field(default_factory=list)
    _keys: list[int] = field(default_factory=list)
    _looked_at: int = 0  # full blocks that were offered for sharing

    @property
    def length(self) -> int:
        """Tokens that are known: the prompt and those made."""
        return len(self.request.prompt) + self.made

    @property
    def done(self) -> bool:
        return self.made == self.request.output_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        start_ns: when it begins.
        end_ns: when it ends.
        tokens: computed in it.
        admitted: what it works on for the first time.
        moving_ns: for how long of it memory moves at full rate.
        computing_ns: for how long of it arithmetic runs at full rate.
    """

    start_ns: int
    end_ns: int
    tokens: int
    admitted: tuple[Generation, ...]
    moving_ns: int
    computing_ns: int


class Engine:
    """The scheduler, its queue and its memory.

    Attributes:
        prefix_queries: prompt tokens looked up in memory at first admissions.
        prefix_hits: those that were found.
        preemptions: how often a request was put back.
    """

    def __init__(self, roofline: Roofline, limits: Limits) -> None:
        self.roofline = roofline
        self.limits = limits
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self._pool = BlockPool(limits.kv_tokens // BLOCK_TOKENS)
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []
        self._work: list[tuple[Generation, int]] = []
        self._end_ns = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def kv_usage(self) -> float:
        """The share of KV blocks that sequences hold."""
        return self._pool.used / self._pool.total

    def submit(self, request: Request) -> Generation:
        """Queue a request. Submit in the order of arrival.

        Raises:
            ValueError: an empty prompt or answer, or longer than `max_model_len` together.
        """
        tokens = len(request.prompt) + request.output_tokens
        if not request.prompt or request.output_tokens < 1 or tokens > self.limits.max_model_len:
            raise ValueError(f"request {request.number} cannot be answered")
        generation = Generation(request, _keys=list(chain(request.prompt)))
        self._waiting.append(generation)
        return generation

    def abort(self, generation: Generation) -> None:
        """Take a request out, wherever it is; one that has ended stays as it is."""
        if generation in self._waiting:
            self._waiting.remove(generation)
        elif generation in self._running:
            self._running.remove(generation)
            self._work = [
                (other, tokens) for other, tokens in self._work if other is not generation
            ]
            self._let_go(generation)

    def next_start_ns(self, free_ns: int) -> int | None:
        """Return when the next step begins on an engine that is free from `free_ns` on, or None."""
        if self._running:
            return free_ns
        return max(free_ns, self._waiting[0].request.arrival_ns) if self._waiting else None

    def begin(self, now_ns: int) -> Step:
        """Begin the step that `next_start_ns` told of; it ends at its `end_ns`, with `end`."""
        self._work = []
        budget = self._go_on()
        admitted = () if budget is None else self._admit(now_ns, budget)
        computed = read = pairs = 0
        for generation, tokens in self._work:
            before = generation._computed
            computed += tokens
            read += before + tokens
            pairs += tokens * before + tokens * (tokens + 1) // 2
        self._end_ns = now_ns + self.roofline.step_ns(computed, read, pairs)
        moving_ns, computing_ns = self.roofline.busy_ns(computed, read, pairs)
        return Step(now_ns, self._end_ns, computed, admitted, moving_ns, computing_ns)

    def end(self) -> list[Generation]:
        """End the step; return those that got a token, in the order of admission."""
        made = []
        ended = False
        for generation, tokens in self._work:
            generation._computed += tokens
            self._share(generation)
            if generation._computed < generation.length:
                continue
            self._make(generation)
            made.append(generation)
            if generation.done:
                self._let_go(generation)
                ended = True
        if ended:
            self._running = [generation for generation in self._running if not generation.done]
        self._work = []
        return made

    def _go_on(self) -> int | None:
        """Plan the running sequences; return the budget left, None where one had to be put back.

        There is a token of the budget for each: only the newest can have more than one to compute.
        """
        budget, index, all_fit = self.limits.token_budget, 0, True
        while index < len(self._running):
            generation = self._running[index]
            tokens = min(generation.length - generation._computed, budget)
            while not self._grow(generation, tokens):
                newest = self._running.pop()
                self._put_back(newest)
                all_fit = False
                if newest is generation:
                    return None
            self._work.append((generation, tokens))
            budget -= tokens
            index += 1
        return budget if all_fit else None

    def _admit(self, now_ns: int, budget: int) -> tuple[Generation, ...]:
        first = []
        while self._waiting and budget and len(self._running) < self.limits.max_batch:
            generation = self._waiting[0]
            if generation.request.arrival_ns > now_ns:
                break
            # The last token is always computed: what follows it comes from there.
            known = generation._keys[: (generation.length - 1) // BLOCK_TOKENS]
            found = known[: self._pool.hits(known)]
            cached = len(found) * BLOCK_TOKENS
            tokens = min(generation.length - cached, budget)
            fresh = blocks_for(cached + tokens) - len(found)
            if not self._pool.take(found, fresh):
                break
            self._waiting.popleft()
            self._running.append(generation)
            self._work.append((generation, tokens))
            budget -= tokens
            generation._computed, generation._own, generation._shared = cached, fresh, found
            generation._looked_at = len(found)
            if generation.admitted_ns is None:
                generation.admitted_ns, generation.cached_tokens = now_ns, cached
                self.prefix_queries += generation.length
                self.prefix_hits += cached
                first.append(generation)
        return tuple(first)

    def _grow(self, generation: Generation, tokens: int) -> bool:
        held = generation._own + len(generation._shared)
        fresh = blocks_for(generation._computed + tokens) - held
        if fresh and not self._pool.take((), fresh):
            return False
        generation._own += fresh
        return True

    def _share(self, generation: Generation) -> None:
        """Offer the blocks that this step filled to other sequences."""
        while generation._looked_at < generation._computed // BLOCK_TOKENS:
            key = generation._keys[generation._looked_at]
            if self._pool.share(key):
                generation._shared.append(key)
                generation._own -= 1
            generation._looked_at += 1

    def _make(self, generation: Generation) -> None:
        generation.made += 1
        generation.previous_ns, generation.latest_ns = generation.latest_ns, self._end_ns
        if generation.first_ns is None:
            generation.first_ns = self._end_ns
        if generation.length % BLOCK_TOKENS == 0:
            begin = generation.length - BLOCK_TOKENS
            tokens = generation.request.prompt[begin:]
            tokens += (OUTPUT_TOKEN,) * (BLOCK_TOKENS - len(tokens))
            before = generation._keys[-1] if generation._keys else 0
            generation._keys.append(extend(before, tokens))

    def _put_back(self, generation: Generation) -> None:
        self._let_go(generation)
        self._waiting.appendleft(generation)
        generation.preemptions += 1
        self.preemptions += 1

    def _let_go(self, generation: Generation) -> None:
        self._pool.release(generation._shared, generation._own)
        generation._computed = generation._own = generation._looked_at = 0
        generation._shared = []
