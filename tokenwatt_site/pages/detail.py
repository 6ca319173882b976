"""One configuration as data: its setup field by field, and every number with its reason or n.

What the page that compares reads of each side, and what is published for programs. Names, units and
meanings of the numbers are those of the registry.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.comparability import flat
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.eligibility import Exclusion
from tokenwatt_site.field_words import in_words
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import instruments, outcomes, text
from tokenwatt_site.pages.unranked import CODE_WORDS
from tokenwatt_site.run import Claims, MetricClaim
from tokenwatt_site.spec import NOT_RECORDED
from tokenwatt_site.trust.verify import ValidatedRun

# History of the format. 1: first.
SCHEMA = "tokenwatt/result/1"

FUNCTION = "TokenwattDetail"
"""What a script with a detail calls: a page opened from disk may fetch nothing."""

_DIVIDED = ("key", "label", "value", "repeats", "reason")
_NOT_COMPARED = frozenset({"runs", "not_covered", "not_recorded", "keyid", "started", "ended"})

_STATUS = ("withdrawn", "superseded", "disputed", "simulated", "unpublished", "interrupted")
"""Codes of exclusions that stand for the whole run, the gravest first."""


def detail(configuration: Configuration) -> dict[str, JsonValue]:
    """Return a configuration as plain JSON values; a number that is missing is null, with why."""
    return without_answers(configuration) | {"answers": _answers(configuration.headline)}


def without_answers(configuration: Configuration) -> dict[str, JsonValue]:
    """Return a detail for which no evidence is read: its `answers` are null."""
    head, claims, setup = configuration.headline, configuration.claims, configuration.setup
    run, protocol = head.run, head.run.spec.protocol
    fields = {k.removeprefix("setup."): v for k, v in flat("setup", setup.to_json())}
    return {
        "schema": SCHEMA,
        "id": configuration.id,
        "title": configuration.title,
        "quoted": False,
        "under": _under(configuration),
        "run": head.run_id,
        "runs": [each.run_id for each in configuration.runs],
        "simulated": configuration.simulated,
        "status": status(configuration.exclusions),
        "signer": head.signer,
        "keyid": head.keyid,
        "key_state": head.key_state,
        "mode": protocol.mode,
        "measured": run.conditions.started[:10],
        "started": run.conditions.started,
        "ended": run.conditions.ended,
        "tool_version": run.conditions.tool_version,
        "setup": fields,
        "not_recorded": [field for field, value in fields.items() if value == NOT_RECORDED],
        "slo": [
            {"metric": o.metric, "label": o.label, "quantile": o.quantile, "limit_ms": o.limit_ms}
            for o in setup.slo
        ],
        "slo_text": text.slo(setup.slo),
        "slo_met": claims.slo_met,
        "workload": setup.workload.to_json(),
        "power_scope": setup.power.scope,
        "power_words": instruments.ONLY[setup.power.scope],
        "cpu": setup.is_cpu,
        "cards": cards(configuration),
        "launches": len(claims.repeats),
        "rows": [protocol.lead_in, protocol.scored, protocol.tail],
        "realisations": _realisations(claims),
        "metrics": [_metric(claims, claim) for claim in claims.metrics],
        "trials": _trials(claims),
        "gate": claims.gate.to_json(),
        "answers": None,
        "exclusions": [{"code": why.code, "text": why.text} for why in configuration.exclusions],
        "retracted": head.standing.retracted,
        "disputed": head.standing.disputed,
        "not_covered": [[each.what, in_words(each.why)] for each in claims.not_covered],
    }


def measured_script(configuration: Configuration, url: str) -> str:
    """Return the script of a configuration's own detail; see `script`."""
    return script(detail(configuration), url)


def script(value: JsonValue, url: str) -> str:
    """Return the script that hands a detail to the page that asked for it, as far as it compares.

    What the registry says of a number is left out: the page has it once for all of them.

    Args:
        value: a detail, or a quoted one.
        url: its page, from the root of the site.
    """
    metrics = [{k: metric[k] for k in _DIVIDED} for metric in value["metrics"]]
    kept = {k: v for k, v in value.items() if k not in _NOT_COMPARED}
    return f"{FUNCTION}({data(kept | {'metrics': metrics, 'url': url})});\n"


def data(value: JsonValue) -> str:
    """Write JSON that may stand in a script: in ASCII, without what could end a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def status(exclusions: Iterable[Exclusion]) -> str:
    """Say in a word how a run stands: may rank, unranked, or the gravest that is said of it."""
    codes = [why.code for why in exclusions]
    if not codes:
        return "may rank"
    return next((CODE_WORDS[code] for code in _STATUS if code in codes), "unranked")


def cards(configuration: Configuration) -> int | None:
    """Count the accelerator cards of the whole setup; None: it has none, or they are not known."""
    accelerator = configuration.setup.accelerator
    if configuration.setup.is_cpu or not text.recorded(accelerator.model):
        return None
    return accelerator.count or None


def _under(configuration: Configuration) -> str:
    setup = configuration.setup
    words = (
        text.boards(setup.accelerator),
        text.engine(setup.engine),
        f"TP{setup.parallelism.tensor}",
        *text.quantization(setup.quantization),
    )
    return ", ".join(words)


def _metric(claims: Claims, claim: MetricClaim) -> dict[str, JsonValue]:
    metric = METRICS[claim.key]
    return {
        "key": claim.key,
        "label": claim.label,
        "unit": metric.unit,
        "better": metric.better,
        "decimals": metric.decimals,
        "value": claim.value,
        "low": claim.low,
        "high": claim.high,
        "new_launch_low": claim.new_launch_low,
        "new_launch_high": claim.new_launch_high,
        "repeats": list(claim.repeats),
        "n": len(claim.repeats),
        "reason": outcomes.why(claims, claim) if claim.value is None else None,
        "marks": list(outcomes.marks(claims, claim.key)),
        "definition": metric.definition,
    }


def _realisations(claims: Claims) -> list[JsonValue]:
    """[realisation, where its band of rates begins, scored rows] of each repeat, in order.

    Repeats of two runs in which these are the same offered the same rows.
    """
    drawn = {trial.repeat: trial.realisation for trial in claims.trials}
    return [[drawn.get(r.repeat), r.band_urps, r.scored] for r in claims.repeats]


def _trials(claims: Claims) -> list[JsonValue]:
    """Every trial that counts and ran to its end, with its order statistics in ms by objective."""
    return [
        {
            "repeat": trial.repeat,
            "rate_urps": trial.rate_urps,
            "passed": trial.verdict == "PASS",
            "ms": {o.label: o.value_ms for o in trial.objectives},
        }
        for trial in claims.trials
        if trial.verdict != "INVALID" and not trial.stopped_early
    ]


def _answers(run: ValidatedRun) -> JsonValue:
    """Which questions of the gate were answered right in the first repeat; None: not asked.

    `correct` is a string of bits in base64, the first question in the highest bit of the first
    byte.
    """
    # Where nothing was asked no evidence is read, which takes longer than all else of a detail.
    log = run.evidence.accuracy if run.claims.accuracy else None
    if log is None:
        return None
    right = [answer.correct for answer in log.of_repeat(1)]
    packed = bytearray((len(right) + 7) // 8)
    for i, correct in enumerate(right):
        if correct:
            packed[i // 8] |= 128 >> i % 8
    return {"questions": len(right), "correct": base64.b64encode(packed).decode()}
