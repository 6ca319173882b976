"""What is private on this machine, as far as it can be known before anybody says it."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from tokenwatt_site.private import Private
from tokenwatt_site.schema import is_secret_variable
from tokenwatt_site.spec import Spec

_LEAST_SECRET = 8
"""Shorter values ("EMPTY", "true") are words that honest messages hold."""


def surroundings(spec: Spec, environment: Mapping[str, str], host: str | None = None) -> Private:
    """Return what an engine or an instrument may repeat, and a run must not publish.

    Args:
        spec: names the machines that are asked, and the variables with keys and passwords.
        environment: of this process, which an engine that is launched inherits.
        host: the name of this machine; None: as the kernel tells.
    """
    named = {spec.endpoint.api_key_variable}
    named |= {
        name for each in spec.instruments for name in (each.user_variable, each.password_variable)
    }
    values = (
        value for name, value in environment.items() if name in named or is_secret_variable(name)
    )
    return Private(
        secrets=frozenset(value for value in values if len(value) >= _LEAST_SECRET),
        hosts=spec.hosts | frozenset(filter(None, [host or socket.gethostname()])),
    )
