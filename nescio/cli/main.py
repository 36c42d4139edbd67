"""The command line. Heavy imports live inside the commands, so that help is instant."""

from __future__ import annotations

import sys

from nescio.cli import act, judge, look
from nescio.cli.app import app

COMMANDS = (act, look, judge)  # importing them has registered what they hold


def main() -> None:
    from nescio.errors import NescioError

    try:
        app()
    except NescioError as error:
        print(f"nescio: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
