"""The order in which pages are requested from the drive, so that its dies work at the same time."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.model.device import Drive

WINDOW = 128        # pages that wait for their turn


def geometry(drive: Drive | None, page_bytes: int) -> tuple[int, int, int]:
    """(dies, pages of a flash page, requests under way), as `over_dies` takes them; without a drive those that keep the
    order."""
    if drive is None:
        return 1, 1, 0
    return drive.channels * drive.dies, max(drive.flash_page_bytes // page_bytes, 1), drive.queue_depth


@njit(cache=True)
def over_dies(pages: NDArray[np.int64], dies: int, flash_pages: int, depth: int,
              window: int = WINDOW) -> NDArray[np.int64]:
    """(N,) positions in `pages` in the order of their requests.

    Of the next `window` pages the request goes to the die that has waited longest, and to all of them that lie in the
    same flash page, since the die reads that once. Without it, random pages leave dies idle while others have a queue.
    Pages that are all under way at once keep the order of need: no die waits for a request then.

    Parameters  pages: (N,) page numbers in the order of need. dies: flash page f lies on die f modulo `dies`.
                flash_pages: pages of a flash page. depth: requests under way
    """
    count = len(pages)
    if count <= depth:
        return np.arange(count)
    first, final, behind = np.full(dies, -1), np.full(dies, -1), np.full(count, -1)     # a queue of each die
    requested = np.full(dies, -1)
    order = np.empty(count, np.int64)
    done = entered = turn = 0
    while done < count:
        while entered < count and entered - done < window:
            die = pages[entered] // flash_pages % dies
            if first[die] < 0:
                first[die] = entered
            else:
                behind[final[die]] = entered
            final[die] = entered
            entered += 1
        chosen = -1
        for die in range(dies):
            if first[die] >= 0 and (chosen < 0 or requested[die] < requested[chosen]
                                    or requested[die] == requested[chosen] and first[die] < first[chosen]):
                chosen = die
        requested[chosen] = turn
        turn += 1
        flash = pages[first[chosen]] // flash_pages
        before, at = -1, first[chosen]
        while at >= 0:
            if pages[at] // flash_pages != flash:
                before, at = at, behind[at]
                continue
            order[done] = at
            done += 1
            if before < 0:
                first[chosen] = behind[at]
            else:
                behind[before] = behind[at]
            if final[chosen] == at:
                final[chosen] = before
            at = behind[at]
    return order
