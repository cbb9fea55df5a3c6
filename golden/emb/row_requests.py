"""The order in which rows are requested from card memory: a queue per bank, which take turns."""

from collections import deque
from collections.abc import Sequence

CLOSE_AT = 12   # rows in a bank's queue before no more are taken


def in_turns(rows: Sequence[int], banks: int) -> list[int]:
    """The order in which rows are requested whose banks are given, when the port is slower than the rows come: their
    numbers, bank after bank."""
    queues: list[deque[int]] = [deque() for _ in range(banks)]
    order: list[int] = []
    turn, coming = 0, iter(enumerate(rows))
    ended = False
    while True:
        while not ended and all(len(queue) < CLOSE_AT for queue in queues):
            number, bank = next(coming, (-1, 0))
            ended = number < 0
            if not ended:
                queues[bank].append(number)
        turn = next((k % banks for k in range(turn + 1, turn + 1 + banks) if queues[k % banks]), -1)
        if turn < 0:
            return order
        order.append(queues[turn].popleft())
