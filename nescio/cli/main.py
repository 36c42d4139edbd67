"""The command line. Heavy imports live inside the commands, so that help is instant."""

from __future__ import annotations

import errno
import re
import sys
from typing import NoReturn

import typer

from nescio.cli import act, judge, look
from nescio.cli.app import app

COMMANDS = (act, look, judge)  # importing them has registered what they hold
DISK = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ELOOP)
MISUSE: type[Exception] = typer.BadParameter.__mro__[1]  # UsageError, which typer keeps to itself
LONG = r"[^\s;]{200,}"


def main() -> None:
    from nescio.errors import FileError, NescioError

    try:
        sys.exit(app(standalone_mode=False))
    except MISUSE as error:
        misused(error)
    except NescioError as error:
        fault(error)
    except OSError as error:
        if error.errno not in DISK:
            raise
        got = f"{error.strerror} for {error.filename}"
        fault(FileError("files must be readable and writable", got, "choose another path, or make room"))


def misused(error: Exception) -> NoReturn:
    """A command or an option that there is not, in one line; a command with nothing after it has shown its help."""
    if type(error).__name__ != "NoArgsIsHelpError":
        place = getattr(getattr(error, "ctx", None), "command_path", "nescio")
        say = getattr(error, "format_message", error.__str__)
        print(f"nescio: {' '.join(say().split()).rstrip('.')}; {place} --help lists what there is", file=sys.stderr)
    sys.exit(2)


def fault(error: Exception) -> NoReturn:
    """One line; a name of thousands of letters is cut."""
    words = " ".join(str(error).split())
    print(f"nescio: {re.sub(LONG, lambda word: f'{word[0][:60]}…', words)}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
