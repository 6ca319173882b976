"""Whether an engine begins to answer in the order in which its model does.

Every family of the model computes prompts in the order of arrival. An engine that lets some of them
overtake others, such as the shortest first, is none of them. A model of the wrong order may come to
the boundary of each window all the same, at prices that are a little wrong, and then be off in the
long run; so the order is looked at by itself.

A request is overtaken when the first token of one that arrived later came earlier by more than a
step: those of one step come in any order. A step is the median time per output token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenwatt_site.engine_model.load import Played
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.goodput import quantile, rank, sorted_values
from tokenwatt_site.spec import Objective


@dataclass(frozen=True, slots=True)
class Order:
    """Of how many requests, how many were overtaken: as they were seen, and in the model."""

    requests: int
    seen: int
    modelled: int

    def words(self) -> str:
        """Say both shares."""
        seen, modelled = (100 * n / max(self.requests, 1) for n in (self.seen, self.modelled))
        return f"{seen:.1f}% of requests were overtaken by later ones, {modelled:.1f}% in the model"

    def refusal(self, slo: Sequence[Objective]) -> str | None:
        """Say that more were overtaken than in the model, if by as many as may decide the SLO.

        That is as many as may miss the strictest objective: when so many stand elsewhere in the
        queue, who misses is no longer what the model tells.
        """
        strictest = max(objective.quantile for objective in slo)
        if self.seen - self.modelled <= self.requests - rank(strictest, self.requests):
            return None
        return (
            f"the engine does not keep the order of its model: {self.words()}, by more than a step;"
            f" {100 * (1 - strictest):.3g}% more may be, as many as may miss the SLO"
        )


def order_of(trials: Iterable[tuple[Sequence[RequestRecord], Played]]) -> Order:
    """Count over trials: the records of each, from its first row on, and how the model answers.

    Requests without a first token are left out on both sides. So are trials in which no answer has
    a time per output token: nothing tells their step.
    """
    requests = seen = modelled = 0
    for records, played in trials:
        steps_ns = sorted_values("tpot", records)
        if not steps_ns:
            continue
        step_ns = quantile(steps_ns, 0.5)
        began = [(r.first_ns, r.row) for r in records if r.first_ns is not None]
        requests += len(began)
        seen += overtaken([first_ns for first_ns, _ in began], step_ns)
        modelled += overtaken([int(played.first_ns[row]) for _, row in began], step_ns)
    return Order(requests, seen, modelled)


def overtaken(first_ns: Sequence[int], step_ns: int) -> int:
    """Count those after which one comes that is less by more than a step."""
    if not first_ns:
        return 0
    count, earliest_ns = 0, first_ns[-1]
    for at_ns in reversed(first_ns):
        count += earliest_ns < at_ns - step_ns
        earliest_ns = min(earliest_ns, at_ns)
    return count
