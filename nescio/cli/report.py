"""`nescio report`: the folder of a run as one page."""

from __future__ import annotations

from pathlib import Path

from nescio.cli.voice import Voice
from nescio.errors import FileError, InputError
from nescio.report.page import write_report
from nescio.runs import open_run


def report(voice: Voice, folder: Path, out: Path | None) -> None:
    run = open_run(folder)
    posterior = run.posterior()
    place = folder / "report.html" if out is None else out
    if place.suffix.lower() not in (".html", ".htm"):
        raise InputError("a report is one .html file", str(place), "write for instance --out report.html")
    try:
        made = write_report(run, posterior, run.given(), place)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{place} must be writable", error.strerror or "an error", "choose another --out") from error
    for mark, title, text in made["verdicts"]:
        voice.say(f"[{mark}] {title}. {text}")
    voice.say(f"report: {place}")
    voice.end(made)
