"""What a score does not cover, and what its answers show on sight to be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tokenwatt_site.evidence.answer_flags import Flag
from tokenwatt_site.evidence.answers import AccuracyLog, Answer
from tokenwatt_site.run import AccuracyClaim, GateClaim
from tokenwatt_site.spec import Spec

_ON_SIGHT: tuple[tuple[Flag, str, str], ...] = (
    (
        "empty",
        "Answers with a text in them",
        "are empty: the engine ended at once, which a wrong chat template or stop string does.",
    ),
    (
        "repetitive",
        "Answers that come to an end of their own",
        (
            "end in one piece over and over: degenerate output, as of damaged weights, too coarse a"
            " quantization or a wrong chat template."
        ),
    ),
    (
        "markers",
        "Answers by the model's own chat template",
        (
            "hold markers of a chat template as text: the engine's template is most likely not the"
            " model's."
        ),
    ),
)


def accuracy_caveats(
    spec: Spec, log: AccuracyLog, claims: Sequence[AccuracyClaim], gate: GateClaim
) -> Iterator[tuple[str, str]]:
    """Yield what scores of whole tasks do not cover, the gravest first; `claims` has one or more.

    That there was no reference is the reason of a number that is absent, and stands there.
    """
    yield from _of_gate(spec, gate)
    yield from _of_answers(log)
    yield from _of_sittings(claims)
    asked, n = spec.setup.accuracy_gate, claims[0].questions
    yield (
        "Questions beyond those asked",
        (
            f"Asked were the first {n:,} of {asked.label}, in the data set's own order; the"
            " score's interval is for questions like these. Other tasks may tell otherwise."
        ),
    )
    yield (
        "Answers drawn at random",
        "Decoding is greedy: each answer is one path of many that sampling could take.",
    )


def _of_gate(spec: Spec, gate: GateClaim) -> Iterator[tuple[str, str]]:
    right, allowed = gate.reference_percent, spec.setup.accuracy_gate.max_drop_points
    if right is not None and right <= allowed:
        yield (
            "Whether the answers got worse",
            (
                f"The reference has {right:.1f}% right and {allowed:g} points may be lost, so that"
                " no answers could fail this gate. It needs a task that the model can do."
            ),
        )


def _of_answers(log: AccuracyLog) -> Iterator[tuple[str, str]]:
    answered = [answer for answer in log.answers if answer.failure is None]
    if failed := Counter(a.failure for a in log.answers if a.failure is not None):
        often = "; ".join(f"{count} × {why[:200]}" for why, count in failed.most_common(3))
        yield (
            "Questions without an answer",
            f"{_of(failed.total(), len(log.answers), 'questions')} count as wrong: {often}.",
        )
    if cut := sum(is_truncated(answer) for answer in answered):
        yield (
            "Answers to their end",
            (
                f"{_of(cut, len(answered))} were cut at max_tokens, {log.header.asked.max_tokens:,}"
                " as the gate has it; what would have come after counts as not said."
            ),
        )
    for flag, what, why in _ON_SIGHT:
        if flagged := sum(flag in answer.flags for answer in answered):
            yield what, f"{_of(flagged, len(answered))} {why}"
    if nothing := sum(is_unread(answer) for answer in answered):
        yield (
            "Answers in a form that the filter reads",
            (
                f"In {_of(nothing, len(answered))} the filter {log.header.asked.filter} found"
                " nothing to score; they count as wrong, whatever they say."
            ),
        )


def is_truncated(answer: Answer) -> bool:
    """Tell whether an answer was cut at the most tokens, as the engine says."""
    return answer.finish == "length"


def is_unread(answer: Answer) -> bool:
    """Tell whether an answer is wrong since the filter found nothing in it."""
    return answer.extracted is None and not answer.correct


def _of_sittings(claims: Sequence[AccuracyClaim]) -> Iterator[tuple[str, str]]:
    for claim in claims:
        if claim.parts > 1:
            yield (
                f"One sitting for all questions of repeat {claim.repeat}",
                f"They were asked in {claim.parts}, after interruptions.",
            )
        if claim.same_launch is False:
            yield (
                f"The launch that was loaded in repeat {claim.repeat}",
                "The engine was launched again before some or all of its questions were asked.",
            )
        if claim.same_launch is None:
            yield (
                f"That the launch loaded in repeat {claim.repeat} gave the answers",
                "Declared by the publisher: the engine does not tell when its process started.",
            )


def _of(count: int, n: int, what: str = "answers") -> str:
    return f"{count:,} of {n:,} {what} ({count / n:.1%})"
