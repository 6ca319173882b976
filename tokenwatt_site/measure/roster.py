"""Who answers at each address of an engine: each replica is asked, and held against the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tokenwatt_site.errors import EngineError, Problem, ReadBackError
from tokenwatt_site.measure.endpoint import EngineFacts, read_back
from tokenwatt_site.replicas import Replica
from tokenwatt_site.spec import Spec

_FIELDS = {
    "setup.engine.name": "name",
    "setup.engine.version": "version",
    "setup.engine.build": "build",
}


def read_back_all(
    urls: Sequence[str], api_key_variable: str | None = None
) -> tuple[EngineFacts, ...]:
    """Ask an engine who it is, or each of its replicas.

    Raises:
        UsageError: see `endpoint.read_back`.
        EngineError: see there; names the replica.
    """
    found = []
    for number, url in enumerate(urls, 1):
        try:
            found.append(read_back(url, api_key_variable))
        except EngineError as error:
            if len(urls) == 1:
                raise
            raise EngineError(
                *(replace(p, what=f"{_name(number, urls)} {p.what}") for p in error.problems)
            ) from error
    return tuple(found)


def _name(number: int, all_of_them: Sequence[object]) -> str:
    return f"replica {number} of {len(all_of_them)}:"


def require_alike(spec: Spec, facts: Sequence[EngineFacts]) -> None:
    """See that all replicas are one engine, and serve the model of the spec.

    Raises:
        ReadBackError: every field in which they differ, with the replicas that say each.
    """
    problems = []
    for field, name in _FIELDS.items():
        told: dict[str, list[str]] = {}
        for number, each in enumerate(facts, 1):
            told.setdefault(getattr(each, name) or "not told", []).append(str(number))
        if len(told) > 1:
            problems.append(_differ(field, told, "the same of each"))
    model = spec.endpoint.model
    without = {
        ", ".join(each.models): [str(number)]
        for number, each in enumerate(facts, 1)
        if model not in each.models
    }
    if without and len(facts) > 1:
        problems.append(_differ("endpoint.model", without, f"{model} of each"))
    if problems:
        raise ReadBackError(*problems)


def _differ(field: str, told: dict[str, list[str]], expected: str) -> Problem:
    return Problem(
        "the replicas are not one engine",
        field=field,
        found="; ".join(
            f"{seen} (replica{'s' * (len(of) > 1)} {', '.join(of)})" for seen, of in told.items()
        ),
        expected=expected,
        remedy="Start each as the spec describes, or take it out of endpoint.urls.",
    )


def as_told(facts: EngineFacts) -> Replica:
    """Return what a journal keeps of what a replica says of itself."""
    return Replica(
        engine=facts.name,
        version=facts.version,
        build=facts.build,
        models=facts.models,
        started=facts.process_started,
    )


def who_answers(urls: Sequence[str], api_key_variable: str | None) -> tuple[Replica | None, ...]:
    """Ask each replica again; None: it does not answer any more."""

    def ask(url: str) -> Replica | None:
        try:
            return as_told(read_back(url, api_key_variable))
        except EngineError:
            return None

    return tuple(map(ask, urls))
