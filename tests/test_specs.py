from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tokenwatt_site.spec import NOT_RECORDED, load_spec
from tokenwatt_site.windows import windows_of
from tokenwatt_site.workload import workload_of

SPECS = sorted((ROOT / "specs").glob("*.spec.yaml"))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_every_shipped_spec_is_valid_and_names_its_workload_by_hash(path: Path) -> None:
    spec = load_spec(path)
    assert workload_of(spec.setup).hash == spec.setup.workload.hash


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_every_shipped_spec_fills_the_engine_before_it_scores(path: Path) -> None:
    spec = load_spec(path)
    limits = [o.limit_ms for o in spec.setup.slo if o.metric == "tpot"]
    if spec.protocol.mode == "demo" or not limits:
        return
    for band in windows_of(spec).bands:
        # At the rate where the scored requests take the shortest window that is allowed.
        rate = min(band.highest_urps / 1e6, band.scored / 120)
        assert band.lead_in >= 1.95 * spec.setup.output_tokens.longest * min(limits) / 1000 * rate


def test_the_spec_of_the_published_example_says_what_the_example_says() -> None:
    setup = load_spec(ROOT / "specs" / "lambda-deepseek-v4.1-flash-tp4-dp1.spec.yaml").setup
    assert (setup.accelerator.count, setup.accelerator.rated_bandwidth_gb_s) == (4, 4800)
    assert [(o.label, o.limit_ms) for o in setup.slo] == [("TTFT p99", 2000), ("TPOT p99", 50)]
    assert setup.parallelism.tensor == 4
    assert setup.engine.image_digest == setup.model.digest == NOT_RECORDED
    assert " ".join(setup.engine.argv) == (
        "vllm/vllm-openai:v0.32.0 --kv-cache-dtype fp8 --tokenizer-mode deepseek_v41"
        ' --engram-config {"cpu_offload":true} --gpu-memory-utilization 0.95'
    )
