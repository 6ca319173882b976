"""What every test may ask for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.nvml.fixtures import nvml_library, scripted  # noqa: F401 - for every test

ROOT = Path(__file__).resolve().parent.parent

# A shell that starts the tests in the background has them ignore Ctrl-C, and so what they start:
# a process that a test ends by SIGINT would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples at every run; `make proof` looks further, from a seed of its own per slice.
settings.register_profile(
    "test",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "proof",
    max_examples=1000,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("TOKENWATT_HYPOTHESIS", "test"))


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of recorded streams, prices and traces; tests that need it skip without it."""
    folder = Path(os.environ.get("TOKENWATT_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no test data at {folder}; set TOKENWATT_TEST_DATA")
    return folder
