"""What tests of the twins share."""


def told(on_card):
    """All that a card says of what it did."""
    return on_card.last, on_card.link, {**on_card.card.counters(), "cycles": 0}
