"""Runs grouped by configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tokenwatt_site.run import Claims
from tokenwatt_site.spec import Mode, Setup
from tokenwatt_site.trust.verify import ValidatedRun

MAX_ID_LENGTH = 64

_MODE_RANK: dict[Mode, int] = {"demo": 0, "quick": 1, "full": 2}


@dataclass(frozen=True, slots=True)
class Configuration:
    """All runs with one setup. `headline` is what the page leads with; `runs` starts with it.

    The headline is the newest complete run of the first publisher in the highest mode that
    publisher has. Repeats of several run files are not pooled yet. The first publisher is the key
    whose run started first, by the runs' own clocks, with the keys that follow it; a key that is
    trusted comes before any that is not, whose dates nobody vouches for. Interrupted runs lead only
    where there is no complete one, and runs that were taken back only where there is no other.

    Simulated and measured runs of one setup are two configurations: `simulated` and the id say so.

    `reference` is the run whose answers the headline's were compared with, where it is among all
    runs and its answers are those of the headline's evidence.
    """

    id: str
    setup: Setup
    title: str
    headline: ValidatedRun
    runs: tuple[ValidatedRun, ...]
    reference: ValidatedRun | None

    @property
    def claims(self) -> Claims:
        """The headline's numbers."""
        return self.headline.claims

    @property
    def simulated(self) -> bool:
        return self.headline.run.simulated


def group(runs: Iterable[ValidatedRun]) -> tuple[Configuration, ...]:
    """Group runs by setup, measured and simulated apart; the order is that of the ids."""
    members: dict[str, list[ValidatedRun]] = {}
    by_id: dict[str, ValidatedRun] = {}
    for run in runs:
        by_id[run.run_id] = run
        members.setdefault(_page_id(run), []).append(run)
    return tuple(_configuration(page, members[page], by_id) for page in sorted(members))


def _page_id(run: ValidatedRun) -> str:
    slug, _, digest = run.run.configuration.rpartition("-")
    if not run.run.simulated:
        return run.run.configuration
    return f"simulated-{slug}"[: MAX_ID_LENGTH - len(digest) - 1].rstrip("-") + f"-{digest}"


def _configuration(
    page: str, runs: Sequence[ValidatedRun], by_id: Mapping[str, ValidatedRun]
) -> Configuration:
    standing = [r for r in runs if not r.standing.retracted] or runs
    leading = _first_publisher([r for r in standing if r.run.status == "complete"] or standing)
    headline = max(leading, key=_importance)
    others = sorted((r for r in runs if r is not headline), key=_importance, reverse=True)
    return Configuration(
        id=page,
        setup=headline.run.spec.setup,
        title=headline.run.spec.title,
        headline=headline,
        runs=(headline, *others),
        reference=_reference(headline, by_id),
    )


def _reference(run: ValidatedRun, by_id: Mapping[str, ValidatedRun]) -> ValidatedRun | None:
    """Return the run that `run` names as its reference, if it gave the answers in its evidence."""
    gate = run.claims.gate
    found = by_id.get(gate.reference_run or "")
    if found is None or _digest(found, "accuracy") != _digest(run, "reference"):
        return None
    return found if found.run.configuration == gate.reference_configuration else None


def _digest(run: ValidatedRun, role: str) -> str | None:
    return next((entry.sha256 for entry in run.run.evidence if entry.role == role), None)


def _first_publisher(runs: Sequence[ValidatedRun]) -> list[ValidatedRun]:
    known = [r for r in runs if r.standing.key.trusted] or runs
    first = min(known, key=lambda r: (r.run.conditions.started, r.run_id))
    # Not the keys before it: anybody may say that another's key follows their own.
    return [r for r in known if r.keyid in first.standing.chain]


def _importance(run: ValidatedRun) -> tuple[int, str, str]:
    # The run id only makes the order of two runs with the same start the same everywhere.
    return _MODE_RANK[run.run.spec.protocol.mode], run.run.conditions.started, run.run_id
