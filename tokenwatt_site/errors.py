"""Every error this project raises on purpose, as one tree.

TokenwattError                  1  a defect of ours, when raised as such
├── UsageError                  2  the command line or a file the user wrote
│   ├── InputError              2  bytes that the strict loader refuses
│   └── SpecError               2  a spec that is not valid
├── EnvironmentProblem          3  the machine: engine, port, disk, permissions
│   ├── EngineError             3  the engine did not start, died or answers wrongly
│   └── ReadBackError           3  what the engine tells differs from the spec
├── GateFailed                  4  measured and written, and its answers are worse than allowed
├── InvalidMeasurement          5  the measurement ran and cannot be used
├── VerificationError           6  a run file that does not prove what it says
├── NotComparable              12  a rerun of another setup, which says nothing of the first run
└── Interrupted               130  stopped by the user; what was measured is kept

The number is the exit code of the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "EngineError",
    "EnvironmentProblem",
    "GateFailed",
    "InputError",
    "Interrupted",
    "InvalidMeasurement",
    "NotComparable",
    "Problem",
    "ReadBackError",
    "SpecError",
    "TokenwattError",
    "UsageError",
    "VerificationError",
]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, with all a reader needs to mend it."""

    what: str
    file: str | None = None
    line: int | None = None
    field: str | None = None
    found: str | None = None
    expected: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        text = ": ".join(part for part in (place, self.field, self.what) if part)
        if self.found is not None:
            text += f"; found {self.found}"
        if self.expected is not None:
            text += f"; expected {self.expected}"
        if self.remedy is not None:
            text += f". {self.remedy}"
        return text


class TokenwattError(Exception):
    """Base of all; carries one or more problems, each printed on its own line."""

    exit_code: ClassVar[int] = 1

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = tuple(Problem(p) if isinstance(p, str) else p for p in problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class UsageError(TokenwattError):
    exit_code = 2


class InputError(UsageError):
    pass


class SpecError(UsageError):
    pass


class EnvironmentProblem(TokenwattError):
    exit_code = 3


class EngineError(EnvironmentProblem):
    pass


class ReadBackError(EnvironmentProblem):
    pass


class GateFailed(TokenwattError):
    exit_code = 4


class InvalidMeasurement(TokenwattError):
    exit_code = 5


class VerificationError(TokenwattError):
    """A run that failed check number `check` (the list is in `trust.verify`)."""

    exit_code = 6

    def __init__(self, check: int, *problems: Problem | str) -> None:
        self.check = check
        super().__init__(*problems)

    def __str__(self) -> str:
        return "\n".join(f"check {self.check}: {p}" for p in self.problems)


class NotComparable(TokenwattError):
    exit_code = 12


class Interrupted(TokenwattError):
    exit_code = 130
