"""Records of requests whose every step is known: what a slow count can be made of."""

from __future__ import annotations

from dataclasses import dataclass

from tokenwatt_site.evidence.records import RequestRecord, Status


def a_record(
    first_ns: int | None,
    last_ns: int | None,
    *,
    prompt: int = 100,
    output: int | None = 11,
    events: int = 11,
    first_tokens: int | None = 1,
    cached: int | None = 0,
) -> RequestRecord:
    """Return a request that was sent at 0."""
    return RequestRecord(
        repeat=1,
        trial=1,
        row=0,
        due_ns=0,
        dialled_ns=None,
        connected_ns=None,
        sent_ns=0,
        first_ns=first_ns,
        last_ns=last_ns,
        end_ns=last_ns or first_ns or 0,
        prompt_asked=prompt,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_asked=output or 0,
        output_tokens=output,
        first_tokens=first_tokens,
        events=events,
        uncertainty_ns=0,
        status=Status.OK,
    )


@dataclass(frozen=True)
class Answer:
    """A request of a batch that steps in time: `steps` after the one that made its first token."""

    first_step: int
    steps: int
    prompt: int
    per_step: int = 1

    def record(self, step_ns: int) -> RequestRecord:
        """Return what a client sees of it, an event at the end of each of its steps."""
        return a_record(
            self.first_step * step_ns,
            (self.first_step + self.steps) * step_ns,
            prompt=self.prompt,
            output=1 + self.steps * self.per_step,
            events=1 + self.steps,
        )

    def context(self, step: int) -> int | None:
        """Return what `step` attends to of it; None: it is not in that step."""
        done = step - self.first_step - 1
        return self.prompt + 1 + done * self.per_step if 0 <= done < self.steps else None


def steady(
    sequences: int, seconds: int = 10, per_event: int = 1, events_s: int = 50
) -> list[RequestRecord]:
    """Return answers that are all in decode all the time."""
    events = events_s * seconds
    return [
        a_record(0, seconds * 10**9, prompt=1000, output=1 + events * per_event, events=1 + events)
        for _ in range(sequences)
    ]
