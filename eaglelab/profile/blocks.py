"""What an EAGLE3_PROF text block means: the hand-made ones of old and the probe's own.

Both have the same shape; what tells them apart is what they say. The probe's accept-length line says "bonus token
included" and its header "gpu time by cuda events". A block that says neither is a hand-made one: its accept length lacks
the bonus token and its times are host timers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eaglelab.profile.block_reader import BlockReader, BlockText
from eaglelab.profile.definitions import HOST_TIMER_WARNING, PHASES
from eaglelab.profile.stats import rounded

__all__ = ["Block", "parse_blocks"]

# Accept lengths are printed with two decimals: nearer than this they are the same figure.
_ROUNDING = 0.011
_CLOSURE = 0.02


@dataclass(frozen=True)
class Block:
    """One block: `text` is what it printed, the properties what that means."""

    text: BlockText

    @property
    def ours(self) -> bool:
        """Written by the probe: the block says so itself."""
        return self.text.says_events or self.text.says_bonus

    @property
    def printed_ms(self) -> dict[str, float]:
        """The phases as printed, ms a cycle, in the order of a cycle."""
        return {name: self.text.values[name] for name in PHASES if name in self.text.values}

    @property
    def printed_accept_length(self) -> float | None:
        """As printed, whatever its definition."""
        return self.text.values.get("accept_length")

    @property
    def printed_tok_s(self) -> float | None:
        """As printed."""
        return self.text.values.get("tok_s")

    @property
    def total_ms(self) -> float | None:
        """TOTAL as printed, else the sum of the phases (ms a cycle); None when no time is there."""
        times = self.printed_ms
        return times.get("total", sum(times.values())) if times else None

    @property
    def shares(self) -> dict[str, float]:
        """Each phase in percent of `total_ms`, recomputed."""
        total = self.total_ms
        return {name: 100 * ms / total for name, ms in self.printed_ms.items() if name != "total"} if total else {}

    @property
    def accept_length(self) -> float | None:
        """Tokens per verify, bonus token included; `accept_length_basis` says how it was found."""
        return self._accept_length()[0]

    @property
    def accept_length_basis(self) -> str:
        """How `accept_length` follows from what was printed."""
        return self._accept_length()[1]

    @property
    def tok_s(self) -> float | None:
        """The probe's own figure; for a hand-made block accept length * batch size (1 unless it says) / total."""
        if self.ours and self.printed_tok_s is not None:
            return self.printed_tok_s
        if self.accept_length is None or not self.total_ms:
            return None
        return 1000 * self.accept_length * self.text.counts.get("batch_size", 1) / self.total_ms

    @property
    def notes(self) -> list[str]:
        """What a reader must know before using the figures."""
        notes = []
        times = self.printed_ms
        if times and not self.ours:
            notes.append(HOST_TIMER_WARNING)
        if self.printed_accept_length is not None and self.accept_length != self.printed_accept_length:
            notes.append("the printed accept length lacks the bonus token that every verify yields")
        if self.text.repeated:
            notes.append("a value is printed twice (blocks of several ranks interleaved?); the first one counts")
        parts = sum(ms for name, ms in times.items() if name != "total")
        if parts and "total" in times and abs(parts - times["total"]) > _CLOSURE * times["total"]:
            notes.append(f"the phases add up to {parts:.3f} ms, TOTAL says {times['total']:.3f} ms")
        return notes

    def _accept_length(self) -> tuple[float | None, str]:
        printed = self.printed_accept_length
        counts = self.text.counts
        accepted, cycles = counts.get("accepted"), counts.get("cycles")
        counted = accepted / cycles if accepted is not None and cycles else None
        if printed is None and (counted is None or self.ours):
            return None, "not printed"
        if printed is None:
            return (counted or 0) + 1, "accepted / cycles + 1: not printed; the 1 is the bonus token"
        if self.ours:
            return printed, "as printed: the block is the probe's, which counts the bonus token"
        if counted is not None and abs(printed - counted - 1) < _ROUNDING:
            return printed, "as printed: it equals accepted / cycles + 1, so the bonus token is in it"
        return printed + 1, "printed + 1: the block does not say that the bonus token is included"

    def to_json(self) -> dict[str, Any]:
        """`printed` is what the log says, `corrected` what it means."""
        counts = self.text.counts
        return {
            "line": self.text.line,
            "source": "probe" if self.ours else "hand-made",
            "clock": "cuda-events" if self.ours else "host",
            **{name: counts.get(name) for name in ("cycles", "accepted", "timed", "steps", "batch_size", "rank")},
            "printed": {
                "ms": self.printed_ms,
                "share_percent": dict(self.text.shares),
                "host_ms": dict(self.text.host_ms),
                "accept_length": self.printed_accept_length,
                "tok_s": self.printed_tok_s,
            },
            "corrected": {
                "total_ms": rounded(self.total_ms, 3),
                "share_percent": {name: rounded(share, 1) for name, share in self.shares.items()},
                "accept_length": rounded(self.accept_length, 2),
                "tok_s": rounded(self.tok_s, 1),
            },
            "accept_length_basis": self.accept_length_basis,
            "notes": self.notes,
        }


def parse_blocks(lines: Iterable[str]) -> list[Block]:
    """All blocks of a log, by line of their header."""
    reader = BlockReader()
    found = [text for number, line in enumerate(lines, start=1) for text in reader.feed(line, number)]
    return [Block(text) for text in sorted([*found, *reader.finish()], key=lambda text: text.line)]
