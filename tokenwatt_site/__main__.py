"""Where the commands start: Ctrl-C ends them in our own way from the first moment on."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run `tokenwatt-site`."""
    _start("main")


def short_main() -> None:
    """Run `tokenwatt`."""
    _start("short_main")


def _start(name: str) -> None:
    try:
        # Imported here, as that alone takes a second in which Ctrl-C may come.
        from tokenwatt_site import cli  # noqa: PLC0415

        getattr(cli, name)()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
