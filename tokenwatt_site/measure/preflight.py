"""Before the load: is it the engine of the spec, and does it do what trials rely on?"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenwatt_site.errors import EngineError, EnvironmentProblem, Problem, ReadBackError
from tokenwatt_site.evidence.power import Board
from tokenwatt_site.journal import Entry
from tokenwatt_site.measure.descriptors import allow
from tokenwatt_site.measure.endpoint import EngineFacts, Prober, Reply
from tokenwatt_site.measure.instruments import merged_boards
from tokenwatt_site.measure.power import PowerMeter
from tokenwatt_site.meters import GPU_SCOPES
from tokenwatt_site.read_back import agrees, declared, rows_of
from tokenwatt_site.replicas import starts
from tokenwatt_site.run import ReadBack
from tokenwatt_site.spec import Protocol, Spec
from tokenwatt_site.windows import Band

PROMPTS = 4
"""How many streams of prompts one preflight asks with, from 0."""

_UNKNOWN_MODEL = "tokenwatt-no-such-model"
_ENDS_SOON = "Answer with one word. Question: Is water wet? Answer:"
_FIXED_TOKENS = 64
_LONGEST_S = 60.0
_IDLE_SHARE = 16  # the client keeps one idle connection for so many that answer
_OTHER_DESCRIPTORS = 128  # files, pipes, the control connection, spare connections


def compare(
    spec: Spec,
    facts: EngineFacts,
    meters: Sequence[PowerMeter] = (),
    model_digest: str | None = None,
) -> tuple[ReadBack, ...]:
    """Hold the spec against what engine and driver say.

    A field declared "not recorded" is listed with what was observed, not compared.

    Args:
        spec: what was declared.
        facts: what the engine says of itself.
        meters: the instruments of `setup.power.sensor`; without them it stays declared.
        model_digest: that of the headers of the model's files, where they were there.

    Raises:
        ReadBackError: every field that differs, with declared and observed.
    """
    power = spec.setup.power
    observed = {
        "setup.engine.name": facts.name,
        "setup.engine.version": facts.version,
        "setup.engine.build": facts.build,
        "endpoint.model": ", ".join(facts.models) or None,
        "setup.driver": _joined({meter.driver for meter in meters if meter.driver}),
        "setup.power.sensor": _joined({meter.sensor for meter in meters}),
        "setup.power.scope": _joined({meter.scope for meter in meters}),
        **_of_boards(merged_boards(meters) if power.scope in GPU_SCOPES else ()),
        "setup.model.digest": model_digest,
    }
    problems = [
        Problem(
            "is not what runs there",
            field=field,
            found=f"{seen} (observed)",
            expected=f"{told} (declared)",
            remedy=_REMEDIES.get(field, "Correct the spec, or start the engine that it describes."),
        )
        for field, told in declared(spec).items()
        if (seen := observed[field]) is not None and not agrees(field, told, seen)
    ]
    problems += _roleless(spec, [board.uuid for board in merged_boards(meters)])
    if problems:
        raise ReadBackError(*problems)
    return rows_of(spec, observed)


def _roleless(spec: Spec, uuids: Sequence[str]) -> Iterator[Problem]:
    """Say which boards of a prefill/decode split have no role, and which names no board."""
    if spec.board_roles is None or not uuids:
        return
    without = [uuid for uuid in uuids if spec.board_roles.of(uuid) is None]
    unused = spec.board_roles.unused(uuids)
    for what, found in (("leaves out boards", without), ("names boards that are not read", unused)):
        if found:
            yield Problem(
                what,
                field="board_roles",
                found=", ".join(found),
                expected=f"each of {', '.join(uuids)}",
            )


_REMEDIES = {
    "setup.accelerator.count": "Name the engine's boards with --gpus, or correct the spec.",
    "setup.model.digest": "Correct the spec, or endpoint.model_files.",
}


def _joined(told: Collection[str]) -> str | None:
    return ", ".join(sorted(told)) or None


def _of_boards(boards: Sequence[Board]) -> dict[str, str | None]:
    limits = {board.limit_mw for board in boards if board.limit_mw is not None}
    return {
        "setup.accelerator.model": _joined({board.name for board in boards}),
        "setup.accelerator.count": str(len(boards)) if boards else None,
        "setup.accelerator.power_limit_w": ", ".join(f"{mw / 1000:g}" for mw in sorted(limits))
        or None,
    }


def require_new_launch(lines: Sequence[Entry], repeat: int, now: Sequence[str | None]) -> None:
    """See that the engine was started anew since the other repeats, where it tells its start.

    Args:
        lines: of the journal so far.
        repeat: the one that is about to begin.
        now: when the process of the engine started, or that of each replica, as it tells; None: it
            does not.

    Raises:
        EnvironmentProblem: naming the repeat of which the process is.
    """
    for line in lines:
        if line.event != "launch" or line.data["repeat"] == repeat:
            continue
        for number, (before, started) in enumerate(
            zip(starts(line, len(now)), now, strict=True), 1
        ):
            if started is not None and started == before:
                who = "the engine" if len(now) == 1 else f"replica {number} of {len(now)}"
                raise EnvironmentProblem(
                    Problem(
                        f"{who} still runs since repeat {line.data['repeat']}",
                        found=f"process started {started}",
                        expected="a new launch for every repeat",
                        remedy="Restart the engine, then resume.",
                    )
                )


def require_restart(spec: Spec, lines: Sequence[Entry], repeat: int, folder: Path) -> None:
    """See that the repeat after `repeat`, if there is one, can have a launch of its own.

    Args:
        spec: says who starts the engine.
        lines: of the journal so far.
        repeat: the one that is done.
        folder: of the measurement, to go on with.

    Raises:
        EnvironmentProblem: the engine is attached, and may be the one of `repeat`.
    """
    asked = [n for n in lines if n.event == "accuracy_start" and n.data["repeat"] == repeat]
    restarted = bool(asked) and asked[-1].data["same_launch"] is False
    ours = spec.endpoint.start == "launch" or spec.endpoint.restart is not None
    if ours or repeat == spec.protocol.repeats or restarted:
        return
    raise EnvironmentProblem(
        Problem(
            f"repeat {repeat} of {spec.protocol.repeats} is done; every repeat needs its own"
            " launch, and an attached engine is not ours to restart",
            file=str(folder),
            remedy="Restart the engine, then go on.",
        )
    )


@dataclass(frozen=True, slots=True)
class Preflight:
    """What the probes found.

    Attributes:
        accepts_unknown_model: a made-up model name was answered, so a typing error in a request
            would not be noticed by this engine.
        chat_overhead_tokens: prompt tokens beside those of the text: of the chat template, or of
            what begins a completion's prompt; 0 for token ids.
        repeat_cached_tokens: cached tokens reported when one prompt came twice; None: not
            reported, so cached prompts could not be seen.
        longest_asked: whether the longest prompt with the longest answer was tried; it is left
            out when it would take more than a minute.
    """

    accepts_unknown_model: bool
    chat_overhead_tokens: int
    repeat_cached_tokens: int | None
    longest_asked: bool


def preflight(
    spec: Spec,
    url: str,
    facts: EngineFacts,
    prompt: Callable[[int, int], Sequence[int] | str],
    counted_by: str | None = None,
) -> Preflight:
    """Send a few probes and refuse an engine on which trials would not mean what they say.

    Args:
        spec: what will be measured.
        url: base of the engine.
        facts: what `read_back` gave.
        prompt: gives a fresh prompt by (number, tokens), as ids or as words.
        counted_by: the tokenizer that counted the words, which the engine must then count alike.

    Raises:
        EngineError: naming the probe or the field: no whole answer, a length that is not honoured,
            no usage or usage that is no count, tokens all at once beside a TPOT objective, prompt
            tokens that differ at all where a tokenizer counted them, else by more than max(2, 1%),
            cached tokens in a fresh prompt, a context too small.
    """
    longest_in, longest_out = spec.setup.longest_prompt, spec.setup.output_tokens.longest
    _require_context(facts, longest_in + longest_out)
    probe = Prober(spec, url)
    fixed = probe.ask("an answer of fixed length", _ENDS_SOON, _FIXED_TOKENS)
    _require_stream(spec, fixed)
    low, high = 16, max(32, min(272, longest_in))
    first = probe.ask("a short prompt", prompt(0, low), 2)
    fresh = prompt(1, high)
    second = probe.ask("a longer prompt", fresh, 2)
    overhead = 0
    if spec.endpoint.prompt_kind == "text":
        overhead = max(0, first.prompt_tokens - low)
        _require_context(facts, longest_in + longest_out + overhead)
    for reply, count in ((first, low), (second, high)):
        _require_prompt(reply, count, overhead, counted_by)
    again = probe.ask("the longer prompt again", fresh, 2)
    longest_s = fixed.elapsed_s * longest_out / _FIXED_TOKENS + second.elapsed_s * longest_in / high
    if longest_s <= _LONGEST_S:
        longest = probe.ask("the longest prompt and answer", prompt(2, longest_in), longest_out)
        _require_prompt(longest, longest_in, overhead, counted_by)
    return Preflight(
        accepts_unknown_model=probe.accepts(
            "an unknown model name", _UNKNOWN_MODEL, prompt(3, low)
        ),
        chat_overhead_tokens=overhead,
        repeat_cached_tokens=again.cached_tokens,
        longest_asked=longest_s <= _LONGEST_S,
    )


def as_one(found: Sequence[Preflight]) -> Preflight:
    """Return what the probes of all replicas found.

    Raises:
        EngineError: one adds other tokens to a prompt than another.
    """
    overheads = [each.chat_overhead_tokens for each in found]
    if len(set(overheads)) > 1:
        raise EngineError(
            Problem(
                "the replicas are not one engine",
                field="usage.prompt_tokens",
                found=f"{', '.join(map(str, overheads))} tokens that each adds to a text",
                expected="as many of each",
            )
        )
    cached = [each.repeat_cached_tokens for each in found]
    told = [tokens for tokens in cached if tokens is not None]
    return Preflight(
        accepts_unknown_model=any(each.accepts_unknown_model for each in found),
        chat_overhead_tokens=overheads[0],
        repeat_cached_tokens=max(told) if len(told) == len(cached) else None,
        longest_asked=all(each.longest_asked for each in found),
    )


def require_descriptors(protocol: Protocol, band: Band, replicas: int = 1) -> None:
    """See that this process may have as many connections as requests can be open at once.

    That many become due within one deadline at the highest rate of a band, or all rows of a trial
    where those are fewer. Raises the soft limit of the process to that where it is lower.

    Raises:
        EnvironmentProblem: the hard limit is below that; names both.
    """
    highest_urps = min(protocol.max_urps, band.highest_urps)
    requests = min(band.rows, math.ceil(highest_urps / 1e6 * protocol.request_timeout_s))
    needed = requests + requests // _IDLE_SHARE + _OTHER_DESCRIPTORS * replicas
    if (allowed := allow(needed)) < needed:
        raise EnvironmentProblem(
            Problem(
                "this machine allows fewer open connections than requests may be open at once",
                field="protocol.max_rate",
                found=f"a hard limit of {allowed} file descriptors",
                expected=f"{needed}, for {requests} requests",
                remedy=f"Raise it (ulimit -Hn {needed}), or lower protocol.max_rate, tail or"
                " request_timeout_s.",
            )
        )


def _require_stream(spec: Spec, reply: Reply) -> None:
    if reply.events == 1 and any(objective.metric == "tpot" for objective in spec.setup.slo):
        raise EngineError(
            Problem(
                "TPOT cannot be measured on an answer that comes as a whole",
                field="setup.slo",
                found=f"all {_FIXED_TOKENS} tokens in one event",
                expected="a stream token by token",
                remedy="Turn off output buffering between here and the engine.",
            )
        )


def _require_context(facts: EngineFacts, tokens: int) -> None:
    if facts.context_tokens is not None and tokens > facts.context_tokens:
        raise EngineError(
            Problem(
                "the longest prompt and answer of the workload do not fit the engine's context",
                field="setup.input_tokens, setup.output_tokens",
                found=f"{facts.context_tokens} tokens per sequence",
                expected=f"at least {tokens} tokens",
                remedy="Start the engine with more context; it would cut answers silently.",
            )
        )


def _require_prompt(reply: Reply, count: int, overhead: int, counted_by: str | None) -> None:
    allowed = max(2, count // 100)
    counted = reply.prompt_tokens - overhead
    if abs(counted - count) > (0 if counted_by else allowed):
        raise EngineError(
            Problem(
                "the engine counts other prompt tokens than were sent",
                field="usage.prompt_tokens",
                found=f"{counted} tokens" + f" beside {overhead} that it adds" * bool(overhead),
                expected=f"{count}, as {counted_by} counts"
                if counted_by
                else f"{count} within {allowed}",
                remedy="Is that the tokenizer of endpoint.model?"
                if counted_by
                else "Check endpoint.model, endpoint.vocabulary and endpoint.api.",
            )
        )
    if (reply.cached_tokens or 0) > overhead + allowed:
        raise EngineError(
            Problem(
                "the engine says that a prompt it never saw was cached",
                field="usage.prompt_tokens_details.cached_tokens",
                found=str(reply.cached_tokens),
                expected="0",
            )
        )
