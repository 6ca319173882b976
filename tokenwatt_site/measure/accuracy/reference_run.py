"""The run whose answers a new run's are compared with. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.evidence.answers import AccuracyLog


@dataclass(frozen=True, slots=True)
class Reference:
    """A verified run that was asked the same questions, as it was chosen before measuring.

    Attributes:
        run_id: of that run.
        configuration: the id of what it measured.
        sha256: digest of its accuracy evidence.
        log: what is in that evidence.
    """

    run_id: str
    configuration: str
    sha256: str
    log: AccuracyLog

    def to_json(self) -> JsonValue:
        """Return what the journal's first line tells of it."""
        return {"run": self.run_id, "configuration": self.configuration, "accuracy": self.sha256}
