"""Reads or builds one project in this process, and tells what that took: processor time, memory."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tests.support.site import build_site
from tokenwatt_site.trust.checked import Checked
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import read_tree


def main(action: str, folder: Path) -> None:
    started_s = time.process_time()
    if action == "read":
        tree = read_tree(folder / "runs", Keyring(), Checked(folder / ".cache" / "tokenwatt"))
        assert not tree.refused, tree.refused[0]
    else:
        build_site(folder)
    figures = {"cpu_s": time.process_time() - started_s, "peak_mb": _peak_mb()}
    sys.stdout.write(json.dumps(figures))


def _peak_mb() -> float:
    # What getrusage tells may be of the process that started this one.
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
