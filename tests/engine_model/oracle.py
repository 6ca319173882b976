"""A modelled engine written down again, as slowly and plainly as can be: objects and lists."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenwatt_site.engine_model.model import EngineModel


@dataclass
class Sequence:
    number: int
    prompt: int
    asked: int
    made: int = 0
    todo: int | None = None
    """Prompt tokens left of the chunk-wise computation; None: not begun, or decoding."""
    first: int = -1
    last: int = -1

    @property
    def length(self) -> int:
        return self.prompt + self.made


@dataclass
class Replica:
    queue: list[Sequence] = field(default_factory=list)
    running: list[Sequence] = field(default_factory=list)
    free: int = 0

    @property
    def busy(self) -> int:
        return len(self.queue) + len(self.running)

    @property
    def held(self) -> int:
        begun = [s.length for s in self.queue if s.todo is not None]
        return sum(begun) + sum(s.length for s in self.running)


def step(model: EngineModel, replica: Replica) -> int:  # noqa: C901
    """Do one step; return how many were put back."""
    family, prices = model.family, model.prices
    kv, is_first = family.kv_tokens, family.prefill == "first"
    put_back, prompt, began = 0, 0, []

    def make_room() -> None:
        nonlocal put_back
        while kv and replica.running and replica.held + len(replica.running) > kv:
            if replica.queue and replica.queue[0].todo is not None:
                replica.queue[0].todo = None
            elif len(replica.running) > 1:
                replica.queue.insert(0, replica.running.pop())
                put_back += 1
            else:
                return
            nonlocal fits
            fits = False

    fits = True
    if not is_first:
        make_room()
    if fits:
        room = family.token_budget - (0 if is_first else len(replica.running))
        for s in replica.queue:
            if room <= 0 or len(replica.running) + len(began) >= family.max_batch:
                break
            if s.todo is None:
                others = replica.running or began
                # Those that ended their prompts in this step are in the queue, and held, still.
                if kv and others and replica.held + len(replica.running) + s.length > kv:
                    break
                s.todo = s.length
            taken = min(room, s.todo)
            s.todo -= taken
            room -= taken
            prompt += taken
            if s.todo:
                break
            began.append(s)
    if is_first and not prompt:
        make_room()
    decoding = [] if is_first and prompt else list(replica.running)
    cost = prices.base_ps + prices.prompt_token_ps * prompt
    cost += prices.sequence_ps * len(decoding)
    cost += prices.context_token_ps * sum(s.length for s in decoding)
    replica.free += max(1, (cost + 500) // 1000)
    for s in [*decoding, *began]:
        s.made += 1
        s.first = replica.free if s.first < 0 else s.first
        if s.made == s.asked:
            s.last = replica.free
    for s in began:
        s.todo = None
        replica.queue.remove(s)
    replica.running = [s for s in [*replica.running, *began] if s.last < 0]
    return put_back


def serve(
    model: EngineModel, due: list[int], n_in: list[int], n_out: list[int]
) -> tuple[list[int], list[int], int]:
    """Return first and last times, in ns, and how many were put back."""
    all_of = [Sequence(i, p, o) for i, (p, o) in enumerate(zip(n_in, n_out, strict=True))]
    replicas = [Replica() for _ in range(model.family.replicas)]
    arrived = put_back = 0
    while any(s.last < 0 for s in all_of):
        busy = [r for r in replicas if r.busy]
        nearest = min(busy, key=lambda r: r.free) if busy else None
        if arrived < len(due) and (nearest is None or due[arrived] <= nearest.free):
            to = min(replicas, key=lambda r: r.busy)
            if not to.busy:
                to.free = max(to.free, due[arrived])
            to.queue.append(all_of[arrived])
            arrived += 1
        elif nearest is not None:
            put_back += step(model, nearest)
    return [s.first for s in all_of], [s.last for s in all_of], put_back
