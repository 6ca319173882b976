"""Reads or builds one project in this process, and tells what that took: processor time, memory."""

from __future__ import annotations

import json
import resource
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
        figures = {"runs": float(len(tree.valid))}
    else:
        build_site(folder)
        figures = {}
    figures["cpu_s"] = time.process_time() - started_s
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
