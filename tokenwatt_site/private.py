"""What no published file may hold: secrets, paths in somebody's home, names of one's own machines.

A run, its evidence and all that is said of it are public. What a publisher writes is refused where
it has the shape of a secret or of such a path (`fault`). What others said while it was measured, an
engine in its errors above all, is scrubbed before it is kept (`Private.scrubbed`): of that machine
more is known than shapes. Who verifies knows the shapes alone, and refuses what still has one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tokenwatt_site.canonical import JsonValue, sha256_hex

SECRET = "[secret]"  # noqa: S105  # what stands in its place
HOME = "~"

# What no prose looks like: real tokens are longer than 16, folders are named hf_models. Each takes
# linear time, whatever the text: nothing unbounded follows a part that may begin anywhere.
_SECRET_SHAPE = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|(sk-|gh[oprsu]_|github_pat_|glpat-|xox[abp]-|nvapi-)[\w-]{16,})"
    r"|\bAKIA[A-Z0-9]{16,}"
    r"|(?<![\w-])eyJ[\w-]{8,}+\.eyJ[\w-]++(\.[\w-]*+)?"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+(-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
    r"|\bbearer\s++\S{8,}"
    r"|://[^/\s:@]++:[^/\s@]++@"
    r"|[?&][\w-]{0,40}(key|token|secret|auth)[\w-]{0,40}=[^&\s]*+",
    re.IGNORECASE,
)

# Not the path of a web address, which follows a name: example.org/home/page. Of a compiler's flag
# it does too: -L/home/x.
_HOME_SHAPE = re.compile(
    r"(?:(?<![\w/.~-])(?!//)|(?<=file://))(?:/[\w.-]++)*?/(?:home|Users)/[\w.-]+"
    r"|(?<=-[IL])/(?:home|Users)/[\w.-]+"
    r"|(?:(?<![\w/.~-])|(?<=file://)|(?<=-[IL]))/root(?=/)"
    r"|\b[A-Za-z]:[\\/]++Users[\\/]++[^\\/\s\"']+"
)

_LOOPBACK = frozenset({"localhost", "localhost.localdomain", "0.0.0.0", "::"})  # noqa: S104
_URL = re.compile(r"(https?://)(\[[^\]]*\]|[^/:?#\s]+)(\S*)")
_DISTINCT = re.compile(r"[.\d:-]")
_DOMAIN = r"(?:\.[\w-]+)*+"


def fault(text: str) -> str | None:
    """Say what is private in a text by its shape, or None."""
    if _SECRET_SHAPE.search(text):
        return "looks like a secret"
    if _HOME_SHAPE.search(text):
        return "is a path in somebody's home, where one from the folder of the command would do"
    return None


def faults(value: JsonValue, path: str) -> Iterator[tuple[str, str]]:
    """Yield (where, what is private) of every text in a value; `path` is where it stands itself."""
    if isinstance(value, str):
        if (found := fault(value)) is not None:
            yield path, found
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if (found := fault(key)) is not None:
                yield f"a key of {path or 'the document'}", found
            else:
                yield from faults(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from faults(item, f"{path}.{index}" if path else str(index))


def hidden_host(host: str) -> str:
    """Return what stands for the name or address of a machine in a published file.

    It is the same for the same machine, so that two can be told apart, and a guess can be
    confirmed, but none read. Names of the loopback say nothing, and stay.
    """
    name = host.strip("[]")
    if name.lower() in _LOOPBACK or name.endswith(".invalid") or _is_loopback(name):
        return host
    return f"host-{sha256_hex(f'tokenwatt/host/1 {name}'.encode())[:12]}.invalid"


def without_host(url: str) -> str:
    """Return a URL with `hidden_host` in the place of its host."""
    match = _URL.fullmatch(url)
    return url if match is None else f"{match[1]}{hidden_host(match[2])}{match[3]}"


def host_of(url: str) -> str | None:
    """Return the host of a URL as it stands there; None: it has none."""
    match = _URL.fullmatch(url)
    return None if match is None else match[2]


@dataclass(frozen=True, slots=True)
class Private:
    """What is known to be private on the machine that measures, beside the shapes.

    Attributes:
        secrets: values of keys and passwords.
        hosts: names and addresses of machines. One that is a plain word, such as `vllm`, is taken
            for a name only where an address stands.
    """

    secrets: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()

    def scrubbed(self, value: JsonValue) -> JsonValue:
        """Return a value in which nothing private stands any more, as far as it is known."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.scrubbed(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.scrubbed(item) for item in value]
        return value

    def text(self, text: str) -> str:
        """Return `scrubbed` of one text."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, SECRET)
        text = _SECRET_SHAPE.sub(SECRET, text)
        text = _HOME_SHAPE.sub(HOME, text)
        for host in sorted(self.hosts, key=len, reverse=True):
            text = _named(host).sub(hidden_host(host), text)
        return text


SHAPES_ALONE = Private()
"""Nothing is known of the machine."""


def _named(host: str) -> re.Pattern[str]:
    """Return what finds the name of a machine in a text, its domain included."""
    name = re.escape(host.strip("[]"))
    if _DISTINCT.search(host):
        return re.compile(rf"(?<![\w.-]){name}{_DOMAIN}(?![\w-])", re.IGNORECASE)
    return re.compile(rf"(?:(?<=//)|(?<=@)){name}{_DOMAIN}(?![\w-])|(?<![\w.-]){name}(?=:\d)")


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
