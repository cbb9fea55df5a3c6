"""What `hotrail cards` prints."""

from collections.abc import Sequence

from fpga.card.discover import FoundCard
from hotrail.terminal import console, print_table

NO_CARD = ("there is no card: no PCIe device is worked by XRT's driver xocl; docs/real-card.md says what one needs, "
           "and card=\"sim\" simulates one")


def text(cards: Sequence[FoundCard], loose: Sequence[str]) -> str:
    """A table with the number that `fpga.card.open("xrt", index=...)` takes, then what is odd. loose: devices that no
    driver works."""
    lines = [f"card {number}: {card.note}" for number, card in enumerate(cards) if card.note]
    if loose:
        lines.append(f"{', '.join(loose)} is AMD's, and no driver of XRT works it: is XRT installed, xocl loaded?")
    if not cards:
        return "\n".join([NO_CARD, *lines])
    head = ("index", "bdf", "platform", "P2P", "drive")
    rows = [(str(number), card.bdf, card.platform or "-", card.p2p, ", ".join(card.namespaces) or "-")
            for number, card in enumerate(cards)]
    shown = console(width=200, color_system=None)
    with shown.capture() as caught:
        print_table(shown, head, rows, left=len(head))
    return "\n".join([*(line.rstrip() for line in caught.get().splitlines()), *lines])
