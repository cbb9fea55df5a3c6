"""A card whose Hotline core is the oracle: it dispatches the next mini-batch when the one before is finished."""

import threading

import numpy as np

from golden.hotline.train import GATHERED, Memory
from hw.isa import HOTLINE
from tests.support import oracle_card

DISPATCHED, FINISHED = (HOTLINE.value(name).word for name in ("dispatched", "finished"))


class OracleCard(oracle_card.OracleCard):
    """The oracle works in a thread of its own, which stands still whenever the host has something to do."""

    kernel = HOTLINE
    worker: threading.Thread | None = None

    def run(self, arguments):
        self.host, self.oracle = threading.Semaphore(0), threading.Semaphore(0)
        self.failed, self.stopped = None, False
        self.block = self.memory[arguments["result"].address][1].view(np.uint32)
        self.steps = 0

        def work():
            try:
                self._work(arguments)
            except BaseException as error:
                self.failed = error
            self.over = True
            self.host.release()

        self.over = False
        self.worker = threading.Thread(target=work, daemon=True)
        self.worker.start()
        self.host.acquire()

    def carry_out(self, program, arena, arguments):
        words = {name: self.memory[value.address][1].view(np.uint32) for name, value in arguments.items()
                 if hasattr(value, "address")}

        def gpu(batch):
            self.block[DISPATCHED] = batch.number + 1
            while self.block[FINISHED] <= batch.number:
                self.host.release()
                self.oracle.acquire()
                if self.stopped:
                    raise InterruptedError
            if batch.kind == GATHERED:
                train = program.reshape(-1, HOTLINE.words)[-1]
                slots, pitch = int(train[4]) >> 16 & 0xFF, int(train[6])
                start = batch.number % slots * pitch * self.core.words
                return words["gradients"][start:start + batch.updates.size].copy()
            return None

        result = self.core.run(Memory(program, arena["inputs"], arena["mailbox"], arena["rows"], arena["hot"],
                                      arguments["gradients_beats"]), None, gpu)
        self.block[[DISPATCHED, FINISHED]] = 0
        self.kinds = [batch.kind for batch in result.batches]
        return result

    def step(self, cycles):
        """Lets the oracle work until it has dispatched a mini-batch, or is done."""
        self.steps += 1
        if not self.over:
            self.oracle.release()
            self.host.acquire()
        return self.over

    def abort(self):
        self.stopped = True

    def reset(self, cycles=4):
        """The oracle's thread ends, wherever it is."""
        if self.worker is not None and not self.over:
            self.stopped = True
            self.wait()

    clear = oracle_card.OracleCard.clear

    def wait(self, timeout_cycles=0, timeout_s=None):
        while not self.step(1):
            pass
        self.worker.join()
        if self.failed is not None and not self.stopped:
            raise self.failed
        return 0
