"""Check run files and recompute every number in them."""

from __future__ import annotations

from pathlib import Path

from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import ValidatedRun, verify_run

KEYS_FOLDER = Path("site_src/keys")


def verify(path: Path, keys: Path = KEYS_FOLDER) -> ValidatedRun:
    """Run all checks of `trust.verify` on one file; its evidence lies beside it.

    Args:
        path: the run file.
        keys: folder of registered keys; absent means that no key is known.

    Raises:
        VerificationError: with the number of the check that failed.
    """
    return verify_run(path, root=path.parent, keyring=Keyring.load(keys))
