"""What the README and the pages in prose tell readers to type is there, and does what they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from mkdocs.__main__ import cli as mkdocs

from tests.support.site import build_site
from tokenwatt_site.cli import app, short_app
from tokenwatt_site.commands.plan import Wanted, plan_of
from tokenwatt_site.measure.rehearsal import Span
from tokenwatt_site.spec import load_spec
from tokenwatt_site.windows import windows_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "site_src").glob("*.md"))]
COMMANDS: dict[str, Any] = {
    "tokenwatt-site": typer.main.get_command(app),
    "tokenwatt": typer.main.get_command(short_app),
    "mkdocs": mkdocs,
}
ENDS = frozenset({"&&", "||", "|", "&", ";", ">", ">>", "<", "(", ")"})


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of every command in a `sh` block that is one of ours."""
    for block in re.findall(
        r"^ *```sh\n(.*?)^ *```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    ):
        for line in block.replace("\\\n", " ").splitlines():
            words: list[str] = []
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            for word in [*lexer, ";"]:
                if word not in ENDS:
                    words.append(word)
                    continue
                if words and words[0] in COMMANDS:
                    yield words
                words = []


def parse(words: list[str]) -> None:
    """Parse the words as their command would, and run nothing.

    Raises what the command line would tell of an option or a value that is not there, or lacks.
    """
    command, rest = COMMANDS[words[0]], words[1:]
    while hasattr(command, "resolve_command"):
        _, command, rest = command.resolve_command(command.context_class(command), rest)
    command.make_context(words[0], rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_quotes_is_one_that_can_be_typed(page: Path) -> None:
    for words in commands(page):
        parse(words)


def test_a_command_that_does_not_exist_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\ncd x && tokenwatt-site plan --sepc A > b # no such option\n```\n")
    (found,) = commands(page)
    assert found == ["tokenwatt-site", "plan", "--sepc", "A"]
    with pytest.raises(Exception, match="--sepc"):
        parse(found)


def test_a_site_is_built_with_the_lines_that_the_page_on_publishing_gives(tmp_path: Path) -> None:
    page = (ROOT / "site_src" / "publish.md").read_text(encoding="utf-8")
    (lines, *_) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(lines.splitlines()) <= 12
    (tmp_path / "mkdocs.yml").write_text(lines, encoding="utf-8")
    (tmp_path / "runs").mkdir()
    (tmp_path / "site_src").mkdir()
    site = build_site(tmp_path)
    assert (site / "index.html").is_file()
    assert (site / "feed.xml").is_file()
    assert (site / "api" / "v1" / "spec.schema.json").is_file()


def test_the_minutes_on_a_rented_pod_are_those_that_plan_tells() -> None:
    page = (ROOT / "site_src" / "rented-pod.md").read_text(encoding="utf-8")
    (name,) = re.findall(r"`([^`]+\.spec\.yaml)`, which comes with the package", page)
    quick = load_spec(ROOT / "specs" / name)
    protocol = quick.protocol.model_copy(update={"mode": "full", "repeats": 3})
    full = quick.model_copy(update={"protocol": protocol})
    made = plan_of(full, windows_of(full), Wanted()).plan
    rows = [*(repeat.seconds for repeat in made.repeats), made.fit]
    for span in rows:
        assert f" | {minutes(span)} | {hours(span)} |" in page
    assert f"**{minutes(made.seconds)}** | **{hours(made.seconds)}**" in page
    whole = plan_of(quick, windows_of(quick), Wanted()).plan.seconds
    assert f"{minutes(whole)} minutes,\n{hours(whole)} GPU-hours" in page


def minutes(span: Span) -> str:
    return f"{span.low / 60:.1f} to {span.high / 60:.1f}"


def hours(span: Span) -> str:
    return f"{4 * span.low / 3600:.1f} to {4 * span.high / 3600:.1f}"
