"""`nescio report`."""

from __future__ import annotations

from pathlib import Path

from nescio.cli.voice import Voice


def report(voice: Voice, folder: Path, out: Path | None) -> None:
    voice.say("to come")
