from __future__ import annotations

import pytest

from tokenwatt_site.field_words import field_words, in_words


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("engine.argv", "Command line"),
        ("engine.environment.OMP_NUM_THREADS", "Engine environment OMP NUM THREADS"),
        ("conversation.turns", "Conversation turns"),
    ],
)
def test_a_field_has_a_name(path: str, words: str) -> None:
    assert field_words(path) == words


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            "the spec names no model files (endpoint.model_files)",
            "the spec names no model files",
        ),
        (
            "no trial broke the SLO; raise protocol.max_rate",
            "no trial broke the SLO; raise the spec's highest rate",
        ),
        (
            "accelerator.power_limit_w, host_kind, quantization.kv_cache",
            "power limit of each (W), host, KV cache",
        ),
        ("driver of llama.cpp, model.name.json (see setup)",) * 2,
    ],
)
def test_a_reason_tells_a_reader_no_path_of_a_spec(told: str, words: str) -> None:
    assert in_words(told) == words
