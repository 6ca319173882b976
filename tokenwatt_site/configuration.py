"""Runs grouped by configuration."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from tokenwatt_site.eligibility import UNPUBLISHED, Exclusion, reasons
from tokenwatt_site.run import Claims
from tokenwatt_site.spec import Mode, Setup
from tokenwatt_site.trust.registration import moment
from tokenwatt_site.trust.verify import ValidatedRun

MAX_ID_LENGTH = 64

_MODE_RANK: dict[Mode, int] = {"demo": 0, "quick": 1, "full": 2}


@dataclass(frozen=True, slots=True)
class Configuration:
    """All runs with one setup. `headline` is what the page leads with; `runs` starts with it.

    The headline is the newest complete run of one publisher in the highest mode that publisher has.
    Repeats of several run files are not pooled yet. Of several publishers the first one leads whose
    headline may rank; where none may, the first of all. First is who has the run that others
    witnessed first; where none did, who started first by the run's own clock. Runs that may rank
    decide that before all others, so that no quick or failed run keeps a place for later. A key
    that is trusted, with the keys that follow it, comes before any that is not, whose dates nobody
    vouches for. Interrupted runs lead only where there is no complete one, and runs that were taken
    back only where there is no other. A run that is not published leads, and is a reference, only
    among such runs: what is published is told as if they were not there.

    `exclusions` says why the headline may not rank.

    Simulated and measured runs of one setup are two configurations: `simulated` and the id say so.

    `reference` is the run whose answers the headline's were compared with, where it is among all
    runs and its answers are those of the headline's evidence.

    `unpublished` are the ids of all runs, and digests of all statements, that are not published.
    """

    id: str
    setup: Setup
    title: str
    headline: ValidatedRun
    runs: tuple[ValidatedRun, ...]
    reference: ValidatedRun | None
    exclusions: tuple[Exclusion, ...]
    unpublished: frozenset[str] = frozenset()

    @property
    def claims(self) -> Claims:
        """The headline's numbers."""
        return self.headline.claims

    @property
    def simulated(self) -> bool:
        return self.headline.held.simulated

    @property
    def preview(self) -> bool:
        """Whether none of its runs is published."""
        return self.headline.run_id in self.unpublished


def group(
    runs: Iterable[ValidatedRun], unpublished: Collection[str] = frozenset()
) -> tuple[Configuration, ...]:
    """Group runs by setup, measured and simulated apart; the order is that of the ids.

    Args:
        runs: all there are.
        unpublished: the ids of those that are not published, digests of statements too.
    """
    hidden = frozenset(unpublished)
    members: dict[tuple[str, str], list[ValidatedRun]] = {}
    by_id: dict[str, ValidatedRun] = {}
    for run in runs:
        by_id[run.run_id] = run
        members.setdefault((_page_id(run), run.held.setup), []).append(run)
    shared = Counter(page for page, _ in members)
    named = {
        # 12 digits can be made to agree by trying; setups that share them are named by more.
        page if shared[page] == 1 else _whole_id(page, whole): members[page, whole]
        for page, whole in members
    }
    public = {run_id: run for run_id, run in by_id.items() if run_id not in hidden}
    found = []
    copies: _Copies = {}
    for page in sorted(named):
        own = [run for run in named[page] if run.run_id in public]
        known = public if own else by_id
        each = _configuration(page, named[page], own or named[page], known, hidden)
        found.append(_with_shared_parts(each, copies))
    return tuple(found)


def led_by(
    configuration: Configuration, run: ValidatedRun, by_id: Mapping[str, ValidatedRun]
) -> Configuration:
    """Return a configuration as if `run`, one of its runs, led it: what is told of that run alone.

    Args:
        configuration: whose run it is.
        run: the run.
        by_id: all runs there are, of which one may be its reference.
    """
    if run is configuration.headline:
        return configuration
    reference = _reference(run, by_id)
    return replace(
        configuration,
        title=run.run.spec.title,
        headline=run,
        runs=(run, *(r for r in configuration.runs if r is not run)),
        reference=reference,
        exclusions=_exclusions(run, reference, configuration.unpublished),
    )


def _page_id(run: ValidatedRun) -> str:
    slug, _, short = run.held.configuration.rpartition("-")
    if not run.held.simulated:
        return run.held.configuration
    return f"simulated-{slug}"[: MAX_ID_LENGTH - len(short) - 1].rstrip("-") + f"-{short}"


def _whole_id(page: str, whole: str) -> str:
    kind = "simulated-" if page.startswith("simulated-") else ""
    return f"{kind}{whole}"[:MAX_ID_LENGTH]


def _configuration(
    page: str,
    runs: Sequence[ValidatedRun],
    leading: Sequence[ValidatedRun],
    by_id: Mapping[str, ValidatedRun],
    unpublished: frozenset[str],
) -> Configuration:
    """Make a configuration of `runs`, led by one of `leading`."""
    known = [r for r in leading if r.standing.key.trusted] or leading
    standing = [r for r in known if not r.standing.retracted] or known
    headline = _headline([r for r in standing if r.run.status == "complete"] or standing, by_id)
    others = sorted((r for r in runs if r is not headline), key=_importance, reverse=True)
    reference = _reference(headline, by_id)
    return Configuration(
        id=page,
        setup=headline.run.spec.setup,
        title=headline.run.spec.title,
        headline=headline,
        runs=(headline, *others),
        reference=reference,
        exclusions=_exclusions(headline, reference, unpublished),
        unpublished=unpublished,
    )


_Copies: TypeAlias = dict[object, Any]
"""Parts of setups, and reasons not to rank, each by what it says: thousands have few."""


def _with_shared_parts(configuration: Configuration, copies: _Copies) -> Configuration:
    """Return a configuration whose parts are those of others that say the same."""
    setup = configuration.setup
    told = setup.model_dump(mode="json")
    parts = {
        name: copies.setdefault((name, json.dumps(told.get(name))), getattr(setup, name))
        for name in Setup.model_fields
    }
    given = copies.setdefault(frozenset(setup.model_fields_set), setup.model_fields_set)
    return replace(
        configuration,
        setup=Setup.model_construct(given, **parts),
        exclusions=tuple(copies.setdefault(why, why) for why in configuration.exclusions),
    )


def _exclusions(
    run: ValidatedRun, reference: ValidatedRun | None, unpublished: frozenset[str]
) -> tuple[Exclusion, ...]:
    preview = (UNPUBLISHED,) if run.run_id in unpublished else ()
    return (*preview, *reasons(run, reference))


def _reference(run: ValidatedRun, by_id: Mapping[str, ValidatedRun]) -> ValidatedRun | None:
    """Return the run that `run` names as its reference, if it gave the answers in its evidence."""
    gate = run.claims.gate
    found = by_id.get(gate.reference_run or "")
    if found is None or _digest(found, "accuracy") != _digest(run, "reference"):
        return None
    return found if found.run.configuration == gate.reference_configuration else None


def _digest(run: ValidatedRun, role: str) -> str | None:
    return next((entry.sha256 for entry in run.run.evidence if entry.role == role), None)


def _headline(runs: Sequence[ValidatedRun], by_id: Mapping[str, ValidatedRun]) -> ValidatedRun:
    may_rank = {r.run_id for r in runs if not reasons(r, _reference(r, by_id))}
    ordered = sorted(runs, key=lambda r: (r.run_id not in may_rank, _first_seen(r), r.run_id))
    # Not the keys before it, which may be lost: others may have them.
    headlines = [
        max((r for r in ordered if r.keyid in chain), key=_importance)
        for chain in dict.fromkeys(r.standing.chain for r in ordered)
    ]
    return next((r for r in headlines if r.run_id in may_rank), headlines[0])


def _first_seen(run: ValidatedRun) -> tuple[bool, datetime]:
    """Return when others saw the run; without them, and after it, when it says that it started."""
    if (witness := run.standing.witness) is not None:
        return False, witness.signed.made
    return True, moment(run.run.conditions.started)


def _importance(run: ValidatedRun) -> tuple[int, str, str]:
    # The run id only makes the order of two runs with the same start the same everywhere.
    return _MODE_RANK[run.run.spec.protocol.mode], run.run.conditions.started, run.run_id
