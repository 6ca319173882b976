"""Steps of a modelled engine, one after the other: integers in, integers out.

One source, compiled by numba, or run as it is (`serve.py_func`) for the same bits, slowly. When a
sequence will end is known from its length, so it waits in a ring of buckets, one for each step to
come, and a step costs as much as what begins and ends in it, however many sequences it decodes.

The rules. A step takes one token of each decoding sequence and then prompt tokens, in the order of
arrival, up to the budget (prefill "first": prompt tokens alone, while there are any). What arrived
by its begin is in it, and all that it makes comes at its end. Where the cache is full the newest
sequence goes back to the head of the queue, and its prompt and answer so far are computed again;
nothing is admitted in that step. A prompt holds its whole cache from its first chunk on. A request
goes, when it arrives, to the replica that has fewest, the first of those.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenwatt_site.engine_model.compiled import Compiled

Ints = npt.NDArray[np.int64]

NONE = -1

MOST_STEPS = 1000
"""Steps and requests put back, for each request: nobody waits for prices that ask for more."""

LATEST_NS = 1 << 62


@Compiled
def serve(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one loop: a call per step costs more than the step
    due: Ints,
    n_in: Ints,
    n_out: Ints,
    prices: Ints,
    limits: Ints,
    ring_size: int,
) -> tuple[Ints, Ints, int]:
    """Return when first and last tokens of requests come, in ns, and how many were put back.

    NONE were put back where it took more than MOST_STEPS, or beyond LATEST_NS; then the times are
    not all there.

    Args:
        due: when requests arrive, in ns, rising; shape (n,).
        n_in: their prompt tokens, 1 or more.
        n_out: their output tokens, 1 or more.
        prices: base, per sequence, per prompt token, per context token; in ps.
        limits: token budget, most sequences, cache in tokens (0: all fit), 1 where prefill is
            first, replicas.
        ring_size: a power of two above all of `n_out`.
    """
    base, per_sequence, per_prompt, per_context = prices[0], prices[1], prices[2], prices[3]
    budget, max_batch, kv, is_first, replicas = (
        limits[0],
        limits[1],
        limits[2],
        limits[3],
        limits[4],
    )
    n, mask = len(due), ring_size - 1
    first = np.full(n, NONE, np.int64)
    last = np.full(n, NONE, np.int64)
    made = np.zeros(n, np.int64)  # tokens, when it last began to decode or was put back
    begun = np.zeros(n, np.int64)  # steps of its replica at that time
    next_waiting = np.full(n, NONE, np.int64)
    ring = np.full((replicas, ring_size), NONE, np.int64)
    ring_next = np.full(n, NONE, np.int64)
    ring_before = np.full(n, NONE, np.int64)
    older = np.full(n, NONE, np.int64)
    newer = np.full(n, NONE, np.int64)
    free_at = np.zeros(replicas, np.int64)
    head = np.full(replicas, NONE, np.int64)
    tail = np.full(replicas, NONE, np.int64)
    newest = np.full(replicas, NONE, np.int64)
    waiting = np.zeros(replicas, np.int64)
    batch = np.zeros(replicas, np.int64)
    context = np.zeros(replicas, np.int64)
    held = np.zeros(replicas, np.int64)
    steps = np.zeros(replicas, np.int64)
    todo = np.full(replicas, NONE, np.int64)  # prompt tokens left of the head that is begun
    arrived = ended = put_back = done = 0
    while ended < n:
        r = NONE
        for k in range(replicas):
            if batch[k] + waiting[k] > 0 and (r == NONE or free_at[k] < free_at[r]):
                r = k
        if arrived < n and (r == NONE or due[arrived] <= free_at[r]):
            r = 0
            for k in range(1, replicas):
                if batch[k] + waiting[k] < batch[r] + waiting[r]:
                    r = k
            if batch[r] + waiting[r] == 0:
                free_at[r] = max(free_at[r], due[arrived])
            if head[r] == NONE:
                head[r] = arrived
            else:
                next_waiting[tail[r]] = arrived
            tail[r] = arrived
            waiting[r] += 1
            arrived += 1
            continue

        prompt = began = 0
        fits = True
        for phase in range(2):
            # Phase 0 makes room for decoding, 1 admits; the other way round where prefill is first.
            if phase == is_first:
                decodes = batch[r] > 0 and not (is_first == 1 and prompt > 0)
                while kv > 0 and decodes and held[r] + batch[r] > kv:
                    if todo[r] != NONE:
                        held[r] -= n_in[head[r]] + made[head[r]]
                        todo[r] = NONE
                    elif batch[r] > 1:
                        j = newest[r]
                        made[j] += steps[r] - begun[j]
                        length = n_in[j] + made[j]
                        context[r] -= length
                        held[r] -= length
                        batch[r] -= 1
                        newest[r] = older[j]
                        if newest[r] != NONE:
                            newer[newest[r]] = NONE
                        before, after = ring_before[j], ring_next[j]
                        if before == NONE:
                            ring[r, (steps[r] + n_out[j] - made[j]) & mask] = after
                        else:
                            ring_next[before] = after
                        if after != NONE:
                            ring_before[after] = before
                        next_waiting[j] = head[r]
                        if head[r] == NONE:
                            tail[r] = j
                        head[r] = j
                        waiting[r] += 1
                        put_back += 1
                    else:
                        break
                    fits = False
            elif fits:
                room = budget if is_first == 1 else budget - batch[r]
                h = head[r]
                while h != NONE and room > 0 and batch[r] + began < max_batch:
                    if todo[r] == NONE:
                        need = n_in[h] + made[h]
                        if kv > 0 and batch[r] + began > 0 and held[r] + batch[r] + need > kv:
                            break
                        todo[r] = need
                        held[r] += need
                    taken = min(room, todo[r])
                    room -= taken
                    prompt += taken
                    todo[r] -= taken
                    if todo[r] > 0:
                        break
                    todo[r] = NONE
                    began += 1
                    h = next_waiting[h]

        decodes = batch[r] > 0 and not (is_first == 1 and prompt > 0)
        cost = base + per_prompt * prompt
        if decodes:
            cost += per_sequence * batch[r] + per_context * context[r]
        free_at[r] += max(1, (cost + 500) // 1000)
        now = free_at[r]
        done += 1
        if done + put_back > MOST_STEPS * n or now > LATEST_NS:
            return first, last, NONE

        if decodes:
            steps[r] += 1
            context[r] += batch[r]
            held[r] += batch[r]
            j = ring[r, steps[r] & mask]
            ring[r, steps[r] & mask] = NONE
            while j != NONE:
                last[j] = now
                ended += 1
                batch[r] -= 1
                context[r] -= n_in[j] + n_out[j]
                held[r] -= n_in[j] + n_out[j]
                if newer[j] == NONE:
                    newest[r] = older[j]
                else:
                    older[newer[j]] = older[j]
                if older[j] != NONE:
                    newer[older[j]] = newer[j]
                j = ring_next[j]
        while began > 0:
            began -= 1
            j = head[r]
            head[r] = next_waiting[j]
            waiting[r] -= 1
            made[j] += 1
            if first[j] == NONE:
                first[j] = now
            if made[j] == n_out[j]:
                last[j] = now
                ended += 1
                held[r] -= n_in[j] + made[j] - 1
                continue
            begun[j] = steps[r]
            batch[r] += 1
            context[r] += n_in[j] + made[j]
            held[r] += 1
            older[j], newer[j] = newest[r], NONE
            if newest[r] != NONE:
                newer[newest[r]] = j
            newest[r] = j
            bucket = (steps[r] + n_out[j] - made[j]) & mask
            ring_before[j], ring_next[j] = NONE, ring[r, bucket]
            if ring[r, bucket] != NONE:
                ring_before[ring[r, bucket]] = j
            ring[r, bucket] = j

        # Most steps only decode: until one is due to end, admits, or begins after an arrival.
        b = batch[r]
        if b == 0 or (waiting[r] > 0 and b < max_batch):
            continue
        at, c, h = free_at[r], context[r], steps[r]
        until = due[arrived] if arrived < n else LATEST_NS
        room = kv - held[r] if kv > 0 else LATEST_NS
        while at < until and b <= room and ring[r, (h + 1) & mask] == NONE:
            at += max(1, (base + per_sequence * b + per_context * c + 500) // 1000)
            c += b
            room -= b
            h += 1
            done += 1
            if done + put_back > MOST_STEPS * n or at > LATEST_NS:
                return first, last, NONE
        held[r] += b * (h - steps[r])
        free_at[r], context[r], steps[r] = at, c, h
    return first, last, put_back
