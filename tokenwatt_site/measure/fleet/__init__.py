"""Several client processes that offer one trial: row i is sent by worker i mod W."""
