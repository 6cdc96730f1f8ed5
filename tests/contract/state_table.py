"""``docs/state-table.md``, read by a program: its states, and its rows of (act, before, others) -> (answer, after, frees)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "state-table.md"
OTHERS = ("-", "W", "W=", "W!", "R", "R!")


@dataclass(frozen=True)
class Row:
    act: str
    before: tuple[str, ...]
    others: tuple[str, ...]
    answer: str
    after: str
    frees: bool

    def __str__(self) -> str:
        more = f" and {len(self.before) - 1} more" if len(self.before) > 1 else ""
        others = "any" if self.others == OTHERS else " ".join(self.others)
        return f"{self.act}; {self.before[0]}{more}; others {others}"


def states() -> list[str]:
    """Every state of one call that the document names."""
    named = DOCUMENT.read_text().split("| state | in words |")[1].split("\n\n")[0]
    return list(re.findall(r"^\| `([^`]+)` \|", named, re.M))


def rows() -> list[Row]:
    lines = DOCUMENT.read_text().split("| act | before |")[1].splitlines()[2:]
    return [_row([cell.strip() for cell in line.strip("| ").split("|")]) for line in lines if line.startswith("|")]


def _row(cells: list[str]) -> Row:
    act, before, others, answer, after, *frees = cells
    named = OTHERS if others == "any" else tuple(others.split())
    return Row(act, tuple(before.split(", ")), named, answer, after, frees == ["yes"])
