"""Two nodes of Ray on this machine: `python -m tests.support.ray_nodes`.

Each has one processor to give, and writes into $RAY_TMPDIR. Prints their address, and ends with its
standard input, and with it all that it started.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

_STORE_BYTES = 80 << 20


def main() -> None:
    small = {
        "num_cpus": 1,
        "object_store_memory": _STORE_BYTES,
        "node_ip_address": "127.0.0.2",  # of 127.0.0.1 Ray makes an address that others reach
        "include_dashboard": False,
    }
    cluster = Cluster(initialize_head=True, head_node_args=small)
    try:
        cluster.add_node(**small)
        sys.stdout.write(f"{cluster.address}\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
