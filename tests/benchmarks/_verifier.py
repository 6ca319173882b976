"""Verify one run in a process of its own: `python -m tests.benchmarks._verifier RUN LEVEL`.

Prints JSON: seconds of the call, seconds of the imports, the most memory of the process in MB, how
many numbers were recomputed. One processor is used, whatever there is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main(run: Path, level: str) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    begin = time.perf_counter()
    from tokenwatt_site.trust.keyring import Keyring
    from tokenwatt_site.trust.verify import verify_run

    imported = time.perf_counter()
    checked = verify_run(run, root=run.parent, keyring=Keyring(), level=level)
    verified = time.perf_counter()
    figures = {
        "verify_s": verified - imported,
        "import_s": imported - begin,
        "peak_mb": _peak_mb(),
        "numbers": checked.numbers,
        "requests": len(checked.evidence.requests),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def _peak_mb() -> float:
    # What getrusage tells may be of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
