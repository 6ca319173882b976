"""vLLM with random weights, measured end to end: power and bandwidth only, unranked.

`transformers serve` (5.19) cannot be measured: it refuses ignore_eos and prompts of token ids.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

from tokenwatt_site.commands.init import spec_yaml
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.measure.engine import launch
from tokenwatt_site.spec import load_spec, parse_spec

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 16384,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""The shape of Llama 3.1 8B, with a smaller vocabulary."""

PROTOCOL: dict[str, Any] = {
    "mode": "demo",
    "repeats": 1,
    "lead_in": 40,
    "scored": 120,
    "tail": 80,
    "start_rate": 4,
    "max_rate": 4,
    "request_timeout_s": 120,
}
"""One rate, 30 s scored: a run for its watts, not for its goodput."""

READY_S = 120
_OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
MAIN = "from tokenwatt_site.cli import main; main()"


def write_model(folder: Path) -> None:
    """Write a config.json and a tokenizer of one word per id; no weights."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    size = CONFIG["vocab_size"]
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"w{n}": n for n in range(3, size)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "unk_token": "<unk>",
                "bos_token": "<s>",
                "eos_token": "</s>",
            }
        )
    )


def command(model: Path) -> list[str] | None:
    """Return how vLLM is started on a model without weights; None: it is not installed."""
    if importlib.util.find_spec("vllm") is None:
        return None
    serve = ["{python}", "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    options = ["--load-format=dummy", "--enforce-eager", "--max-model-len=16384"]
    return [*serve, *options, "--host=127.0.0.1", "--port={port}"]


def measure(url: str, folder: Path, protocol: dict[str, Any] = PROTOCOL) -> Path:
    """Write a spec as `init` does, shorten it to `protocol`, measure it; return the run file."""
    spec = folder / "check.spec.yaml"
    _tokenwatt(folder, "init", f"--url={url}", f"--out={spec}")
    spec.write_text(shortened(load_spec(spec).to_json(), protocol))
    out = folder / "run.json"
    _tokenwatt(folder, "measure", f"--spec={spec}", f"--out={out}")
    return out


def shortened(spec: dict[str, Any], protocol: dict[str, Any]) -> str:
    """Return a spec with another protocol as YAML; its title says what the weights are."""
    title = f"random weights: {spec['title']}"
    return spec_yaml(parse_spec({**spec, "title": title, "protocol": protocol}, source="check"))


def measured_end_to_end(folder: Path) -> dict[str, Any]:
    """Measure the engine that is installed here; return its claims, or the reason for none."""
    model, log = folder / "random-llama-8b", folder / "engine.log"
    write_model(model)
    argv = command(model)
    if argv is None:
        return {"engine": None, "reason": "vLLM is not installed"}
    try:
        with launch(argv, _OFFLINE, log=log, ready_timeout_s=READY_S) as engine:
            run = measure(engine.url, folder)
    except (EnvironmentProblem, subprocess.CalledProcessError) as error:
        return {"engine": " ".join(argv[:3]), "reason": str(error)}
    claims = json.loads(run.read_text())["claims"]["metrics"]
    values = {claim["key"]: claim["value"] for claim in claims}
    return {"engine": " ".join(argv[:3]), "run": str(run), "claims": values}


def _tokenwatt(folder: Path, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-c", MAIN, *arguments], cwd=folder, check=True, stdin=subprocess.DEVNULL
    )
