"""A run of somebody else's site, fetched with its evidence, within bounds.

Nothing of it is believed: it lies in a folder then as any run does, and `trust.verify` reads it.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from tokenwatt_site.canonical import (
    MAX_DOCUMENT_BYTES,
    JsonValue,
    clean_text,
    load_json,
    sha256_hex,
)
from tokenwatt_site.commands.output import not_written
from tokenwatt_site.errors import InputError, Problem, UsageError
from tokenwatt_site.evidence.store import EvidenceFile, address, most_packed
from tokenwatt_site.files import put
from tokenwatt_site.measure.control import Peer, request
from tokenwatt_site.schema import valid
from tokenwatt_site.trust.verify import MAX_RUN_EVIDENCE_BYTES

MAX_PIECES = 100
"""Of evidence: as many instruments as a spec may name, and what else there is."""

_DEADLINE_S = 300.0
_SITE = Peer("site", "URL", "Correct the address, or download the run with its evidence.")


def is_address(source: str) -> bool:
    """Tell whether this is meant as a URL, and no file."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", source) is not None


def fetch_run(url: str, into: Path) -> Path:
    """Fetch a run file and its evidence, as a site publishes them, and return the run file.

    Args:
        url: of the run file; its evidence lies in `evidence/` beside it. https, or http of this
            machine.
        into: gets a folder for the run, named by its digest; fetched again, it is replaced.

    Raises:
        UsageError: no such address, nothing is there, no run document is, or its evidence is more
            than is read.
        EngineError: the site does not answer, in time and in full.
        EnvironmentProblem: `into` cannot be written.
    """
    _require_safe(url)
    data = _get(url, MAX_DOCUMENT_BYTES)
    entries = _entries(load_json(data, source=url), url)
    folder = into / sha256_hex(data)[:12]
    beside = url.rpartition("/")[0]
    try:
        (folder / "evidence").mkdir(parents=True, exist_ok=True)
        for digest, entry in entries.items():
            # The address is the digest: nothing that the document says leads anywhere else.
            name = address(digest)
            put(folder / name, _get(f"{beside}/{name}", most_packed(entry.bytes)))
        # Last, so that a folder with a run file has all of it.
        put(folder / "run.json", data)
    except OSError as error:
        raise not_written(folder, error) from error
    return folder / "run.json"


def _require_safe(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, scheme = parts.hostname or "", parts.scheme
        _ = parts.port  # raises where it is none
        host.encode("idna")  # as whoever connects does
    except ValueError:
        host, scheme = "", ""
    safe = scheme == "https" or (scheme == "http" and _is_here(host))
    if not (safe and host) or re.search(r"[\s@?#\\]", url) or url.endswith("/"):
        raise UsageError(
            Problem(
                "is no address of a published run",
                field="URL",
                found=clean_text(url.rpartition("@")[2]),
                expected="https://HOST/.../run.json, without user, query or fragment; http only of"
                " this machine",
            )
        )


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _get(url: str, most: int) -> bytes:
    answer = request(url, deadline_s=_DEADLINE_S, max_bytes=most, peer=_SITE)
    if answer.status != 200:
        raise UsageError(
            Problem(
                "is not there",
                file=url,
                found=f"HTTP {answer.status}",
                expected="the file itself; redirects are not followed",
            )
        )
    return answer.body


def _entries(document: JsonValue, url: str) -> dict[str, EvidenceFile]:
    """Return the pieces of evidence by digest."""
    told = document.get("evidence") if isinstance(document, dict) else None
    if not isinstance(told, list) or "run_schema" not in document:
        raise InputError(Problem("is no run file", file=url))
    entries = [valid(EvidenceFile, item, f"{url}: evidence") for item in told]
    total = sum(entry.bytes for entry in entries)
    if len(entries) > MAX_PIECES or total > MAX_RUN_EVIDENCE_BYTES:
        raise InputError(
            Problem(
                "is more evidence than is read",
                file=url,
                field="evidence",
                found=f"{len(entries):,} files, {total:,} bytes",
                expected=f"at most {MAX_PIECES} files, {MAX_RUN_EVIDENCE_BYTES:,} bytes",
            )
        )
    return {entry.sha256: entry for entry in entries}
