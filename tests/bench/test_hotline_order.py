"""The order of the accuracy study is the core's: golden.hotline.train's on the same log; and the log of figure 7.6."""

import numpy as np
import pytest

from bench import hotline_auc, hotline_overlap
from bench.framework import LeftOut
from gen.compiler.hotline import Train
from golden.hotline.train import Memory
from tests.support import hotline_logs as make

pytestmark = pytest.mark.regress


def test_the_order_is_that_of_the_core(monkeypatch):
    config = make.with_config(row_slots=4096, embedding_beats=8192)
    log = make.log(1, 400, rows=(700, 900, 40), pinned=(), config=config)
    layout, how = log.layout, Train(12, 2, 0.0)
    for name, value in (("BANKS", config.banks), ("SETS", config.sets), ("AGE_LOG2", config.insert_log2),
                        ("LATE", -0.5)):
        monkeypatch.setattr(hotline_auc, name, value)
    order, share = hotline_auc.order_of(layout, log.indices, 100, how.batch)
    words = np.concatenate([layout.registers(), layout.learn(100, 0), layout.train(how, 400, 0, 0)[1:]])
    mailbox = np.zeros(max(layout.image_beats, layout.mailbox_beats(how)) * config.words, np.uint32)
    result = make.core(config).run(Memory(words.reshape(-1), log.samples.reshape(-1), mailbox,
                                          layout.rows().reshape(-1),
                                          gradients_beats=layout.gradients_beats(how)))
    assert result.code == 0
    assert [part.tolist() for part in order] == [batch.numbers.tolist() for batch in result.batches]
    assert share == result.counters["popular"] / 400 and 0 < share < 1
    monkeypatch.setattr(hotline_auc, "LATE", 4)
    late, _ = hotline_auc.order_of(layout, log.indices, 100, how.batch)
    assert [part.tolist() for part in late] != [part.tolist() for part in order]
    assert sorted(map(tuple, late)) == sorted(map(tuple, order))


def test_auc_by_hand():
    assert hotline_auc.auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])) == 0.75
    assert hotline_auc.auc(np.array([0.5, 0.5]), np.array([0, 1])) == 0.5


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.delenv("HOTRAIL_DATA", raising=False)
    with pytest.raises(LeftOut, match="^needs anime_420k.npz in the folder that HOTRAIL_DATA names$"):
        next(hotline_auc.rows())


@pytest.mark.parametrize("share", [0.0, 0.75, 1.0])
def test_the_log_has_as_many_popular_samples_as_asked_for(share):
    log = hotline_overlap.log(share=share, samples=2000, learned=10)
    head = (log.indices < hotline_overlap.ROWS // 50).all(axis=1).mean()
    # Of the samples of the tail a fifth draws no row there.
    assert share - 0.03 <= head <= share + (1 - share) * 0.35
    assert log.payload[:, 0].tolist() == list(range(2000))
