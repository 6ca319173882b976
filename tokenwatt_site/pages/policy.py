"""What a page may load and run: its Content-Security-Policy, and the only scripts that are in it.

Static hosts send no headers of ours, so the policy is a meta element. A script inside a page may
run by its digest alone, and only one that the page's makers wrote gets a digest: the theme's, found
in its templates, and those in prose of the site. A script that came into a page on any other way is
not called its own, however it got there.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_SCRIPT = re.compile(
    r"<script(?P<attributes>[^>]*)>(?P<body>.*?)</script\s*>", re.DOTALL | re.IGNORECASE
)
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>=`]+)))?""")
_DATA = frozenset({"application/json", "application/ld+json"})
"""Types of a script element that hold data, which no browser runs."""

_VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_CHARSET = re.compile(r'<meta charset="utf-8">', re.IGNORECASE)

_CLOSED = ("object-src 'none'", "base-uri 'none'", "form-action 'none'")
"""No plugin, no other base of links, and nothing to send a form to; what else is not named has the
default."""

SITE = (
    "default-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "connect-src 'self'",
    *_CLOSED,
)
"""Pages of a site: its own files. Styles inside a page are Material's and those of the charts."""

ALONE = ("default-src 'none'", "style-src 'unsafe-inline'", *_CLOSED)
"""A page in one file: nothing is loaded at all."""


def policy(sources: Iterable[str], scripts: Iterable[str], *, own_files: bool) -> str:
    """Return the policy of a page.

    Args:
        sources: SITE or ALONE.
        scripts: the scripts inside the page that may run.
        own_files: whether scripts that are files of the site may run too.
    """
    allowed = ["'self'"] if own_files else []
    allowed += dict.fromkeys(map(script_hash, scripts))
    return "; ".join((*sources, f"script-src {' '.join(allowed)}"))


def script_hash(script: str) -> str:
    """The source expression that lets exactly this inline script run (CSP level 2)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def inline_scripts(html: str) -> Iterator[str]:
    """Yield the scripts inside a page that a browser would run, which data there is not."""
    for match in _SCRIPT.finditer(html):
        if not _is_not_run(match["attributes"]):
            yield match["body"]


def _is_not_run(attributes: str) -> bool:
    """Tell whether a script element has its script elsewhere, or data in its place.

    By the attributes themselves, of which the first counts: one named data-src, or a value with
    "json" in it, makes no script harmless.
    """
    found: dict[str, str] = {}
    for name, *values in _ATTRIBUTE.findall(attributes):
        found.setdefault(name.lower(), "".join(values))
    return "src" in found or found.get("type", "").strip().lower() in _DATA


def with_policy(html: str, scripts: Iterable[str]) -> str | None:
    """Return a page of the site with its policy; None: it has no place for one.

    Args:
        html: the page, whole.
        scripts: the scripts inside it that may run.
    """
    meta = (
        '<meta http-equiv="Content-Security-Policy"'
        f' content="{policy(SITE, scripts, own_files=True)}">'
    )
    filled, count = _CHARSET.subn(lambda found: found[0] + meta, html, count=1)
    return filled if count else None


@dataclass(frozen=True, slots=True)
class KnownScripts:
    """The scripts that templates write into pages, with room for the values they put in."""

    shapes: tuple[re.Pattern[str], ...]

    @classmethod
    def of(cls, templates: Iterable[str]) -> KnownScripts:
        """Find them in the text of templates.

        A value is part of an address or an id: no sign in it could end the string it stands in.
        """
        bodies = {body for template in templates for body in inline_scripts(template)}
        return cls(
            tuple(
                re.compile(r"[\w./:~%-]*".join(map(re.escape, _VALUE.split(body))))
                for body in sorted(bodies)
            )
        )

    def __contains__(self, script: object) -> bool:
        return isinstance(script, str) and any(s.fullmatch(script) for s in self.shapes)
