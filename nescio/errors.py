"""The one form of an error: what must hold, what was got, what would work."""

from __future__ import annotations


class NescioError(Exception):
    """Base of every error that nescio raises on purpose; the message is one line in three parts."""

    def __init__(self, must: str, got: str, remedy: str) -> None:
        Exception.__init__(self, must, got, remedy)  # as arguments: the error can cross to another process
        self.must, self.got, self.remedy = must, got, remedy

    def __str__(self) -> str:
        return f"{self.must}; got {self.got}; {self.remedy}"


class InputError(NescioError, ValueError):
    """An argument, a table or a tensor is not what it has to be."""


class FileError(NescioError, OSError):
    """A file is missing, damaged, foreign or from a newer version."""


class UnsupportedError(NescioError, TypeError):
    """Model, law, network and method are each fine, but do not go together."""
