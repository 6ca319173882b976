"""Answers many requests in one process, as lm-eval is slow to start; and what lm-eval itself does.

Standard input: {"requests": {NAME: REQUEST}, "oracle": {...}, "answer": FILE}, where "digests" of a
request may be the name of the one that planned what it scores. The file gets {"answers": {NAME:
ANSWER}, "oracle": [[PROMPT, [FILTER, FOUND, SCORE], ...], ...]}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tokenwatt_site.measure.accuracy import harness


def as_lm_eval_does(wanted: dict[str, Any]) -> list[list[Any]]:
    """Run lm-eval's own evaluation with a model that gives known answers."""
    import lm_eval.tasks
    from lm_eval import evaluator
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._yaml_loader import load_yaml

    class Told(LM):
        def generate_until(self, *_: Any, **__: Any) -> list[str]:
            return list(wanted["replies"])

        def loglikelihood(self, *_: Any, **__: Any) -> Any:
            raise AssertionError

        loglikelihood_rolling = loglikelihood

    manager = TaskManager(include_defaults=False)
    config = load_yaml(Path(lm_eval.tasks.__file__).parent / "gsm8k" / "gsm8k.yaml")
    for key in ("tag", "dataset_name"):
        config.pop(key)
    config |= {"dataset_path": "json", "dataset_kwargs": {"data_files": wanted["files"]}}
    done = evaluator.simple_evaluate(
        model=Told(),
        tasks=[config],
        num_fewshot=wanted["shots"],
        limit=len(wanted["replies"]),
        task_manager=manager,
        bootstrap_iters=0,
    )
    found: dict[int, list[Any]] = {}
    for sample in done["samples"]["gsm8k"]:
        row = found.setdefault(sample["doc_id"], [sample["arguments"][0][0]])
        row.append([sample["filter"], sample["filtered_resps"][0], sample["exact_match"]])
    return [found[number] for number in sorted(found)]


if __name__ == "__main__":
    given = json.load(sys.stdin)
    answers: dict[str, Any] = {}
    for name, each in given["requests"].items():
        if isinstance(planned := each.get("digests"), str):
            each["digests"] = answers[planned]["task"]["asked"]
        answers[name] = harness.respond(each)
    result = {"answers": answers, "oracle": as_lm_eval_does(given["oracle"])}
    Path(given["answer"]).write_text(json.dumps(result))
