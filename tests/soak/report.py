"""What a soak did and found, as text for somebody who was not there."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

#: violations of one claim that are printed; the file in the folder has them all
PRINTED = 10


@dataclass
class Report:
    seed: int
    #: what was let loose on what, in a sentence
    about: str
    folder: Path
    #: each claim, in words -> what breaks it, each in a sentence
    claims: dict = field(default_factory=dict)
    #: heading -> what was counted under it, by name
    counts: dict = field(default_factory=dict)
    #: what was excused, each with its reason
    excused: list = field(default_factory=list)
    kept: bool = False

    @property
    def broken(self):
        return [sentence for broken in self.claims.values() for sentence in broken]

    def text(self, printed=PRINTED):
        lines = [f"Soak with seed {self.seed}: {self.about}"]
        for heading, counts in self.counts.items():
            lines += ["", heading, *([f"  {count:6}  {name}" for name, count in counts.items()] or ["       -"])]
        if self.excused:
            lines += ["", "Not ours, and shown to be so", *(f"  {sentence}" for sentence in self.excused)]
        lines += ["", "Claims"]
        for claim, broken in self.claims.items():
            lines += [f"  {'BROKEN' if broken else 'holds '}  {claim}", *(f"          {each}" for each in broken[:printed])]
        if self.kept:
            lines += ["", f"Logs, plan, events and all that the broker was told: {self.folder}"]
        verdict = f"RED: {len(self.broken)} violations. Again: make soak SEED={self.seed}" if self.broken else "GREEN"
        return "\n".join([*lines, "", verdict])

    def __str__(self):
        return self.text()


def by_kind(counter):
    return dict(sorted(Counter(counter).items()))
