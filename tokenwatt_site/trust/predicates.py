"""What can be stated about a run: the predicates of `trust.statement`, one for each kind. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from tokenwatt_site.schema import Line, Model, Sha256, Words, publishable
from tokenwatt_site.statistics import Reproduction
from tokenwatt_site.trust.registration import Moment

Kind: TypeAlias = Literal[
    "recomputed",
    "reproduced",
    "countersigned",
    "disputed",
    "settled",
    "withdrawn",
    "superseded",
    "seen",
]

HttpsUrl = Annotated[
    str,
    Field(
        max_length=1000,
        pattern=r"^https://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?(/[A-Za-z0-9_.~:/?#@!$&'()*+,;=%-]*)?$",
    ),
    AfterValidator(publishable),
]
"""A link that a page may carry: https, to a host in ASCII, with nothing before it."""


class Said(Model):
    """What every predicate has: the key that signs (its id is the envelope's), and when."""

    public_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    made: Moment


class Recomputed(Said):
    """All numbers of the run were made again from its evidence and came out equal.

    `level` "data" leaves out what a replay of the engine model gives.
    """

    level: Literal["data", "model"]
    numbers: Annotated[int, Field(ge=0)]
    tool_version: Line


class Reproduced(Said):
    """The setup was measured again as `run` (its id), and this came out of comparing both."""

    run: Sha256
    outcome: Reproduction


class Countersigned(Said):
    """The run was there at `made`."""


class Disputed(Said):
    """Something is wrong with the run; `url`: where it is discussed."""

    reason: Words
    url: HttpsUrl | None


class Settled(Said):
    """Its signer no longer stands by a dispute of theirs (`trust.statement.Signed.digest`).

    It names one, so that it takes back no other, whatever was disputed before or will be.
    """

    dispute: Sha256
    reason: Words


class Withdrawn(Said):
    """Its publisher takes the run back."""

    reason: Words


class Superseded(Said):
    """Its publisher has a better run: `by` (its id)."""

    by: Sha256
    reason: Words


class Seen(Said):
    """Another statement about the run (`trust.statement.Signed.digest`) was there at `made`."""

    statement: Sha256


Predicate: TypeAlias = (
    Recomputed | Reproduced | Countersigned | Disputed | Settled | Withdrawn | Superseded | Seen
)

PREDICATES: Mapping[Kind, type[Predicate]] = MappingProxyType(
    {
        "recomputed": Recomputed,
        "reproduced": Reproduced,
        "countersigned": Countersigned,
        "disputed": Disputed,
        "settled": Settled,
        "withdrawn": Withdrawn,
        "superseded": Superseded,
        "seen": Seen,
    }
)
KINDS: Mapping[str, Kind] = MappingProxyType({f"urn:tokenwatt:{k}:1": k for k in PREDICATES})
"""Kind by predicate type. A change of what a kind says gets another number at its end."""
