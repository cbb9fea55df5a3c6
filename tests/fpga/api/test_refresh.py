"""Cards that take a delta while they run: the new state or the old one, never a mixture, whatever ends it when."""

import numpy as np
import pytest

import fpga.card.runs
from fpga.api.embedding import EmbeddingBags
from fpga.api.serving import Cards, batches
from fpga.card import CardError, Device
from gen.bundle import write
from gen.delta import apply
from gen.delta import write as change
from gen.model.weights import SeededWeights
from golden.emb.core import Emb
from tests.gen.test_delta import SPLIT, swapped
from tests.support import bundles as make
from tests.support import emb_card
from tests.support.cutting import Cut

QUICK = Device.load("smartssd").replace("ssd", read_us=1.0, dies=32).replace(
    "host", submit_us=0.2, complete_us=0.2, poll_us=0.1, doorbell_us=0.1)
SENDING = ("send", "settle")
BY = {"genre": "samples", "town": "columns"}


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """A bundle, a delta of it, the bundle that this leaves; another delta and what that leaves."""
    folder = tmp_path_factory.mktemp("states")
    base = write(folder / "base", make.plan(None, split=SPLIT, by=BY), make.profile(make.log()), SeededWeights(3))
    delta = change(folder / "delta", base, base.plan, swapped(base, count=3))
    after = apply(folder / "after", base, delta)
    second = change(folder / "second", after, base.plan, swapped(after, seed=4, count=3))
    return base, delta, after, second, apply(folder / "last", after, second)


@pytest.fixture(scope="module")
def chunk():
    (found,) = batches(make.log(), 12, 12)
    return found


class Cutting:
    """Cards whose cores are oracles and whose calls can be cut short."""

    def __init__(self, bundle, monkeypatch):
        self.cards, left = [], list(bundle.emb_cards)

        def opened(kind, *, core, **options):
            images = bundle.images(left.pop(0))
            self.cards.append(Cut(emb_card.OracleCard(Emb.of(images.config, images.cores)), also=SENDING))
            return self.cards[-1]

        monkeypatch.setattr(fpga.card.runs, "open_card", opened)


def vectors(cards, chunk):
    return {name: each.view(np.uint32).tolist() for name, each in cards.infer(chunk).vectors.items()}


def of(bundle, chunk, monkeypatch):
    make.Opened(bundle, monkeypatch)
    with Cards(bundle) as cards:
        return vectors(cards, chunk), [bags.card.read(bags._runs.buffers["rows"]).tolist()
                                       for bags in cards.emb.values()]


@pytest.fixture
def wanted(states, chunk, monkeypatch):
    return [of(bundle, chunk, monkeypatch) for bundle in (states[0], states[2], states[4])]


def test_cards_take_one_delta_after_the_other(states, chunk, wanted, monkeypatch):
    base, delta, after, second, last = states
    assert wanted[0][1] != wanted[1][1] != wanted[2][1]
    make.Opened(base, monkeypatch)
    with Cards(base) as cards:
        for step, (found, state) in enumerate(zip(wanted, (base, after, last), strict=True)):
            assert vectors(cards, chunk) == found[0] and cards.state == state.state
            assert [bags.card.read(bags._runs.buffers["rows"]).tolist() for bags in cards.emb.values()] == found[1]
            if step < 2:
                cards.refresh((delta, second)[step])
        with pytest.raises(ValueError, match="changes another bundle, or another state"):
            cards.refresh(delta)
        assert vectors(cards, chunk) == wanted[2][0]


@pytest.mark.turns(1, of="flows")
@pytest.mark.parametrize("is_behind", [False, True])
def test_an_interrupt_at_any_call_leaves_one_state(states, chunk, wanted, monkeypatch, is_behind):
    base, delta, after, *_ = states
    ends = set()        # states that were left
    for number in range(2):
        at = 0
        while True:
            opened = Cutting(base, monkeypatch)
            with Cards(base) as cards:
                vectors(cards, chunk)
                opened.cards[number].cut(at, is_behind)
                try:
                    cards.refresh(delta)
                except KeyboardInterrupt:
                    pass
                was_cut = opened.cards[number].count > at
                opened.cards[number].cut(None)
                ends.add(cards.state)
                assert vectors(cards, chunk) == wanted[cards.state == after.state][0], (number, at)
                if cards.state == base.state:
                    cards.refresh(delta)
                assert vectors(cards, chunk) == wanted[1][0]
            if not was_cut:
                break
            at += 1
        assert at > 3
    assert ends == {base.state, after.state}


@pytest.mark.parametrize("at", range(2))
def test_an_interrupt_behind_the_decision_is_caught_up_with(states, chunk, wanted, monkeypatch, at):
    """Between the cards' own turns: all of them have the new plan, or have it before the next batch."""
    base, delta, after, *_ = states
    make.Opened(base, monkeypatch)
    honest, turns = EmbeddingBags.adopt, []

    def adopt(bags, staged):
        turns.append(bags)
        if len(turns) == at + 1:
            raise KeyboardInterrupt
        honest(bags, staged)

    with Cards(base) as cards:
        monkeypatch.setattr(EmbeddingBags, "adopt", adopt)
        with pytest.raises(KeyboardInterrupt):
            cards.refresh(delta)
        assert cards.state == after.state and vectors(cards, chunk) == wanted[1][0]


def test_a_card_that_fails_keeps_the_old_state(states, chunk, wanted, monkeypatch):
    base, delta, *_ = states
    make.Opened(base, monkeypatch)
    with Cards(base) as cards:
        last = list(cards.emb.values())[-1]
        monkeypatch.setattr(last.card, "settle", lambda: (_ for _ in ()).throw(CardError("it is gone")))
        with pytest.raises(CardError, match="it is gone"):
            cards.refresh(delta)
        monkeypatch.undo()
        make.Opened(base, monkeypatch)
        assert cards.state == base.state and vectors(cards, chunk) == wanted[0][0]


def test_pages_in_a_file(tmp_path, states):
    """The drive's file has the old pages or the new ones; after an interrupt they are written back before a run."""
    base, delta, after, *_ = states
    card = base.emb_cards[0]
    images, new, part = base.images(card), after.images(card), delta.change(card)
    cut = Cut(emb_card.OracleCard(Emb.of(images.config, images.cores)), also=SENDING)
    ask = [EmbeddingBags.request("user/id", np.arange(300), np.arange(300))]
    with EmbeddingBags(images, card=cut, preset="tiny", ring_bytes=1 << 16, ssd=tmp_path / "ssd") as bags:
        before = bags.batch(ask)[0]
        cut.cut(0)
        with pytest.raises(KeyboardInterrupt):
            bags.stage(new, part.beats, part.numbers)
        cut.cut(None)
        assert (np.fromfile(tmp_path / "ssd", np.uint32) == new.pages.reshape(-1)).all()
        assert (bags.batch(ask)[0] == before).all()
        assert (np.fromfile(tmp_path / "ssd", np.uint32) == images.pages.reshape(-1)).all()
        bags.adopt(bags.stage(new, part.beats, part.numbers))
        assert (bags.batch(ask)[0] == before).all()     # one row each: where it lies changes no bit
        assert (np.fromfile(tmp_path / "ssd", np.uint32) == new.pages.reshape(-1)).all()
        (tmp_path / "ssd").unlink()
        with pytest.raises(CardError, match="ssd: the pages cannot be written there: No such file"):
            bags.stage(images, part.beats, part.numbers)


def test_a_run_between_staging_and_adopting(tmp_path, states):
    """It is answered by the old images, which are then on the card; the next one by the new ones, whole and in the
    drive's file."""
    base, delta, after, *_ = states
    card = base.emb_cards[0]
    images, new, part = base.images(card), after.images(card), delta.change(card)
    ask = [EmbeddingBags.request("user/id", np.arange(300), np.arange(0, 300, 3))]

    def opened(which, file):
        return EmbeddingBags(which, card=emb_card.OracleCard(Emb.of(images.config, images.cores)), preset="tiny",
                             ring_bytes=1 << 16, ssd=tmp_path / file)

    with opened(images, "ssd") as bags, opened(new, "wanted") as wanted:
        before = bags.batch(ask)[0].tobytes()
        staged = bags.stage(new, part.beats, part.numbers)
        assert bags.batch(ask)[0].tobytes() == before
        bags.adopt(staged)
        assert bags.batch(ask)[0].tobytes() == wanted.batch(ask)[0].tobytes() != before
        assert (tmp_path / "ssd").read_bytes() == (tmp_path / "wanted").read_bytes()
    with pytest.raises(CardError, match="it is closed"):
        bags.adopt(staged)


@pytest.mark.parametrize("adopts", [False, True])
def test_images_that_are_adopted_again(states, adopts):
    """Though others were staged in between: what the card holds is not what it shall answer by."""
    base, delta, after, *_ = states
    card = base.emb_cards[0]
    images, new, part = base.images(card), after.images(card), delta.change(card)
    ask = [EmbeddingBags.request("user/id", np.arange(300), np.arange(0, 300, 3))]

    def opened(which):
        return EmbeddingBags(which, card=emb_card.OracleCard(Emb.of(images.config, images.cores)), preset="tiny",
                             ring_bytes=1 << 16)

    with opened(images) as bags, opened(new) as wanted:
        first = bags.stage(new, part.beats, part.numbers)
        bags.adopt(first)
        other = bags.stage(images, part.beats, part.numbers)
        if adopts:
            bags.adopt(other)
        bags.adopt(first)
        assert bags.batch(ask)[0].tobytes() == wanted.batch(ask)[0].tobytes()


def test_what_cannot_be_staged(states):
    images, other = states[0].images(0), states[0].images(1)
    with EmbeddingBags(images, card=emb_card.OracleCard(Emb.of(images.config, images.cores)), preset="tiny",
                       ring_bytes=1 << 16) as bags:
        with pytest.raises(ValueError, match="they must be of .* as on the card, and without a row cache"):
            bags.stage(other, np.zeros(0, np.int64), np.zeros(0, np.int64))
    with pytest.raises(CardError, match="it is closed"):
        bags.stage(images, np.zeros(0, np.int64), np.zeros(0, np.int64))


@pytest.mark.parametrize("card", ["sim", "twin"])
def test_simulated_cards(states, chunk, card):
    """Two Verilated cores, or twins, before and behind a delta, bit for bit cards opened on what it leaves."""
    base, delta, after, *_ = states
    options = {"card": card, "device": QUICK, "limit_cycles": 500_000} | ({"memory": "ideal"} if card == "sim" else {})
    with Cards(base, **options) as cards:
        vectors(cards, chunk)
        cards.refresh(delta)
        found = vectors(cards, chunk)
    with Cards(after, **options) as cards:
        assert vectors(cards, chunk) == found
