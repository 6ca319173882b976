"""A site of which every text that a stranger can write is hostile, and its harmless twin."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.runs import (
    RunBuilder,
    a_failure,
    a_key,
    an_answer,
    answers_of,
    gated_spec,
    played_counters,
    played_power,
    small_spec,
    under_load_of,
    with_answers,
)
from tests.support.site import make_project
from tests.support.statements import state
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.trust.registration import file_name as registration_name
from tokenwatt_site.trust.registration import register, to_bytes

HOSTILE = (
    "</title></textarea></script><script>document.body.dataset.pwned=1</script>"
    '<img src=x onerror="document.body.dataset.pwned=1"><svg onload=document.body.dataset.pwned=1>'
    " [x](javascript:alert(1)) {{7*7}} {% raw %} &lt;b&gt; '\"--><!-- ]]> \\u003c"
)
"""Breaks out of elements, attributes, comments, scripts, Markdown and templates."""

LONG_NAME = 140 * "\u05d0" + 150 * "W"
"""Of the owner of a key: written from the right, then from the left, with no place to break it."""

AS_TEMPLATES = """
from jinja2 import Template

def on_page_markdown(markdown, page, **_):
    if page.file.generated_by is None:
        return markdown  # prose of the site itself, which may show braces
    page.title = Template(page.title).render()
    return Template(markdown).render()
"""
"""A hook that takes text and title of a page for templates, as the plugin for macros does."""

HARMLESS = "Plain words of a label"

FILE_NAME = "<img src=x onerror=document.body.dataset.pwned=1>.json"


def labelled_run(words: str) -> RunBuilder:
    """Return a run in which `words` stand wherever a run has words that its publisher chooses."""
    changes: dict[str, Any] = {
        "title": words,
        "note": f"{words}\n\n{words}",
        "setup__accelerator": {
            "model": words,
            "count": 2,
            "memory_gib": 80,
            "rated_bandwidth_gb_s": 2000.0,
            "power_limit_w": 400.0,
        },
        "setup__power": {"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0},
        "setup__driver": words,
        "setup__host_kind": words,
        "setup__engine": {
            "name": words,
            "version": words,
            "build": words,
            "image_digest": words,
            "argv": ["toy", "{port}", words],
            "environment": {"LABEL": words},
        },
        "setup__kernel_libraries": [words],
        "setup__model": {
            "name": words,
            "revision": words,
            "architecture": "dense",
            "digest": words,
        },
        "setup__quantization": {"weights": words, "kv_cache": words},
        "setup__parallelism__prefill_decode_split": words,
        "endpoint__model": words,
        "endpoint__model_files": "models/toy",
        "instruments": [{"sensor": "redfish", "url": "http://127.0.0.1:9/redfish"}],
    }
    spec = gated_spec(4, **changes)
    answers = with_answers(
        answers_of(spec, [True, True, True, False]),
        an_answer(1, 0, right=True, text=words),
        a_failure(1, 3, words),
    )
    bare = RunBuilder(spec=spec, simulated=False, idle_s=12, unread={"redfish": words})
    power = played_power(bare)
    boards = tuple(
        board.model_copy(update={"uuid": f"{number} {words}", "name": words})
        for number, board in enumerate(power.boards)
    )
    return replace(
        bare,
        power=replace(power, boards=boards),
        counters=played_counters(bare),
        model=ModelDocument({"model_type": words}),
        accuracy=answers,
        under_load=under_load_of(bare, differing=1),
    )


def labelled_record(words: str) -> dict[str, Any]:
    """Return a quoted publication that says nothing but `words`."""
    value = {"metric": words, "text": words, "number": 1.0, "unit": words}
    return {
        "record_schema": "tokenwatt/claims-only/1",
        "id": "some-report",
        "title": words,
        "published": "2026-10-27",
        "source": words,
        "column": words,
        "summary": f"{words}\n\n{words}",
        "results_note": words,
        "charts": [{"heading": words, "value": value, "axis_max": 2.0, "caption": words}],
        "numbers_note": words,
        "numbers": [value],
        "setup_note": words,
        "setup": [{"field": words, "text": words}],
        "not_covered_note": words,
        "not_covered": [words],
        "reproduce_note": words,
        "reproduce": [words],
        "our_notes": [words],
    }


def labelled_project(folder: Path, words: str, file_name: str) -> Path:
    """Make the sources of a site of one run, another that leads the ranking, and one record.

    The owner of the key has `words` for a name, and one with a LONG_NAME disputes the run in
    `words`. A file called `file_name` fails verification, and is left out by name. Returns
    `folder`.
    """
    runs = make_project(folder, on_invalid="drop")
    (folder / "as_templates.py").write_text(AS_TEMPLATES, encoding="utf-8")
    with (folder / "mkdocs.yml").open("a", encoding="utf-8") as config:
        config.write("hooks: [as_templates.py]\n")
    state(labelled_run(words).write(runs / "labelled"), "disputed", a_key(2), reason=words)
    RunBuilder(spec=small_spec(), simulated=False).write(runs / "plain")
    (runs / "record.json").write_text(json.dumps(labelled_record(words)), encoding="utf-8")
    (runs / file_name).write_text(json.dumps({"run_schema": words}), encoding="utf-8")
    keys = folder / "site_src" / "keys"
    keys.mkdir()
    for registration in (
        register(a_key(), name=words, organisation=words),
        register(a_key(2), name=LONG_NAME, organisation=words),
    ):
        (keys / registration_name(registration.keyid)).write_bytes(to_bytes(registration))
    return folder
