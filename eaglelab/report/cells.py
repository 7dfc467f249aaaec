"""How figures look in a table: one place for decimals, missing values and bars. Fixed text stays plain ASCII."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from eaglelab.profile.stats import Stats

__all__ = ["MISSING", "Bar", "figure", "interval", "left", "ms", "note", "percent", "plain_table", "spread", "tok_s"]

MISSING = "-"
_BAR_WIDTH = 10


class Bar:
    """A share (0 to 1) as a line; `#` where the terminal cannot show more than ASCII."""

    def __init__(self, share: float) -> None:
        self._share = min(max(share, 0.0), 1.0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        mark = "#" if options.ascii_only or options.legacy_windows else "\u2501"
        yield Segment(mark * round(self._share * _BAR_WIDTH))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_BAR_WIDTH, _BAR_WIDTH)


def plain_table(*headers: str, text: int = 1) -> Table:
    """A table whose first `text` columns are text and whose others are right-aligned figures; headers carry the units."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, header in enumerate(headers):
        table.add_column(header, justify="left" if index < text else "right", no_wrap=True)
    return table


def left(table: Table, *columns: int) -> Table:
    """Turn columns into wrapping text; for chaining after `plain_table`."""
    for column in columns:
        table.columns[column].justify = "left"
        table.columns[column].no_wrap = False
    return table


def note(text: str) -> Padding:
    """An indented sentence; never read as markup."""
    return Padding(Text(text), (0, 0, 0, 2))


def figure(value: float | None, decimals: int) -> str:
    """A number, or `-` when it is not known."""
    return MISSING if value is None else f"{value:.{decimals}f}"


def ms(value: float | None) -> str:
    """Milliseconds, three decimals."""
    return figure(value, 3)


def tok_s(value: float | None) -> str:
    """Tokens per second, one decimal."""
    return figure(value, 1)


def percent(share: float | None) -> str:
    """A share (0 to 1) in percent; the header has the sign."""
    return MISSING if share is None else f"{100 * share:.1f}"


def spread(stats: Stats | None, decimals: int) -> str:
    """Half the 95 % interval of the mean."""
    return MISSING if stats is None else figure(stats.half_width, decimals)


def interval(ci95: tuple[float, float] | None, decimals: int) -> str:
    """A 95 % interval as `low to high`."""
    return MISSING if ci95 is None else f"{ci95[0]:.{decimals}f} to {ci95[1]:.{decimals}f}"
