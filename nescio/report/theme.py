"""Two sets of colours for one figure: on white paper and on a dark page. The colour-blind can tell the colours of either apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True)
class Theme:
    """`ink` for what is read, `grey` for what may be overlooked, `pale` for areas; `blue` against `orange`; `miss` for what is wrong."""

    paper: str
    ink: str
    grey: str
    pale: str
    blue: str
    orange: str
    miss: str
    cycle: tuple[str, ...]  # of chains

    def settings(self) -> dict[str, Any]:
        """What matplotlib has to know of it."""
        return {
            "figure.facecolor": self.paper,
            "axes.facecolor": self.paper,
            "axes.labelcolor": self.ink,
            "axes.edgecolor": self.grey,
            "text.color": self.ink,
            "xtick.color": self.ink,
            "ytick.color": self.ink,
        }


# Okabe & Ito (2008); for dark paper the same hues, lighter
LIGHT = Theme(
    paper="#ffffff",
    ink="#222222",
    grey="#767676",
    pale="#d9d9d9",
    blue="#0072b2",
    orange="#e69f00",
    miss="#d55e00",
    cycle=("#0072b2", "#e69f00", "#009e73", "#aa4499", "#56b4e9", "#8c6d00"),
)
DARK = Theme(
    paper="#14171c",
    ink="#ececea",
    grey="#9aa1a9",
    pale="#3b414a",
    blue="#62b8f0",
    orange="#f0ad2b",
    miss="#ff7a45",
    cycle=("#62b8f0", "#f0ad2b", "#3fcf9f", "#d78be0", "#a8d8f8", "#d9c65a"),
)
