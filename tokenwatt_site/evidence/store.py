"""Files of evidence: gzip'd JSONL beside the run file, each under the digest of what is in it.

The address is the SHA-256 of the uncompressed bytes: gzip output differs between zlib builds.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tokenwatt_site.canonical import read_file, sha256_hex
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.files import put
from tokenwatt_site.schema import Line, Model, Sha256

MAX_COMPRESSED_BYTES = 64 << 20
MAX_EVIDENCE_BYTES = 512 << 20


class EvidenceFile(Model):
    """The entry of a run file that points at a piece of evidence. `bytes` are uncompressed."""

    role: Line
    path: str
    sha256: Sha256
    bytes: Annotated[int, Field(ge=0, le=MAX_EVIDENCE_BYTES)]
    lines: Annotated[int, Field(ge=0)]


def address(sha256: str) -> str:
    """Return where the evidence with a digest lies, from the folder of its run file."""
    return f"evidence/{sha256}.jsonl.gz"


def store(folder: Path, role: str, data: bytes) -> EvidenceFile:
    """Write `data` under its own digest into `folder` (made when absent), whole or not at all.

    Raises:
        OSError: the disk is full or not writable.
    """
    digest = sha256_hex(data)
    path = address(digest)
    folder.mkdir(parents=True, exist_ok=True)
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    put(folder / Path(path).name, compressor.compress(data) + compressor.flush())
    return EvidenceFile(
        role=role,
        path=path,
        sha256=digest,
        bytes=len(data),
        lines=data.count(b"\n"),
    )


def most_packed(size: int) -> int:
    """Return how large `size` bytes may be as gzip, where nothing in them can be made smaller."""
    return min(size + size // 1000 + 1024, MAX_COMPRESSED_BYTES)


def fetch(run_folder: Path, entry: EvidenceFile) -> bytes:
    """Return the uncompressed bytes of `entry`, checked against its digest, size and line count.

    Raises:
        InputError: the file is absent, no regular file, inflates beyond its stated size, has
            bytes after the gzip member, or is not what the entry says.
    """
    expected_path = address(entry.sha256)
    if entry.path != expected_path:
        # The address is the digest: nothing a run says can point outside its own folder.
        raise InputError(
            Problem(
                "is not the address of its digest",
                field=f"evidence.{entry.role}.path",
                found=repr(entry.path[:200]),
                expected=repr(expected_path),
                remedy=_UNCHANGED,
            )
        )
    path = run_folder / expected_path
    if path.parent.is_symlink():
        raise InputError(Problem("is a symbolic link", file=str(path.parent)))
    packed = read_file(path, limit=most_packed(entry.bytes))
    if len(packed) > _FLAGS and packed[_FLAGS]:
        raise InputError(
            Problem(
                "has names or comments in its gzip header, which nobody checks",
                file=str(path),
                remedy=_UNCHANGED,
            )
        )
    inflater = zlib.decompressobj(31)
    try:
        data = inflater.decompress(packed, entry.bytes + 1)
        whole = inflater.eof and not inflater.unused_data and not inflater.unconsumed_tail
    except zlib.error as error:
        raise InputError(Problem(f"is not gzip: {error}", file=str(path))) from error
    if len(data) != entry.bytes or not whole:
        raise InputError(
            Problem(
                "does not inflate to the stated size",
                file=str(path),
                field=f"evidence.{entry.role}.bytes",
                found=f"{len(data):,} bytes{'' if whole else ' and more'}",
                expected=f"{entry.bytes:,} bytes",
                remedy=_UNCHANGED,
            )
        )
    if (found := sha256_hex(data)) != entry.sha256:
        raise InputError(
            Problem(
                "has another digest",
                file=str(path),
                field=f"evidence.{entry.role}.sha256",
                found=found,
                expected=entry.sha256,
                remedy=_UNCHANGED,
            )
        )
    if (lines := data.count(b"\n")) != entry.lines:
        raise InputError(
            Problem(
                "has another number of lines",
                file=str(path),
                field=f"evidence.{entry.role}.lines",
                found=str(lines),
                expected=str(entry.lines),
                remedy=_UNCHANGED,
            )
        )
    return data


_FLAGS = 3  # the byte of a gzip header that tells what follows it (RFC 1952, 2.3)
_UNCHANGED = "Publish the run file and its evidence as `measure` wrote them."
