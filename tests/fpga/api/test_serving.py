"""fpga.api.serving and verifying: a bundle's cards on a log, against dictionaries and loops; with oracles for
cores, and simulated."""

import numpy as np
import pytest

from fpga.api.network import MlpNetwork
from fpga.api.serving import Cards, batches
from fpga.api.verifying import summary, verify
from fpga.card import Device
from gen.bundle import load_inputs, write
from gen.compress.post_hoc import tt_rows
from gen.data.logs import Chunk, of_arrays
from gen.data.logs.features import dense_of
from gen.data.profiling import profile as profiled
from gen.model.row_formats import quantise
from gen.model.weights import FileWeights, SeededWeights
from gen.planner.costs import Costs
from gen.planner.planning import make as planned
from tests.support import bundles as make
from tests.support.mlp_card import OracleCard
from tests.support.mlp_sizes import core as mlp_core

QUICK = Device.load("smartssd").replace("ssd", read_us=1.0, dies=32).replace(
    "host", submit_us=0.2, complete_us=0.2, poll_us=0.1, doorbell_us=0.1)


@pytest.fixture(scope="module")
def log():
    return make.log()


@pytest.fixture(scope="module")
def made(log, tmp_path_factory):
    return write(tmp_path_factory.mktemp("bundle") / "small", make.plan(), make.profile(log), SeededWeights(3))


@pytest.fixture
def oracles(made, monkeypatch):
    return make.Opened(made, monkeypatch)


def by_hand(bundle, chunk, name, dense):
    """Pooled vectors of a table by its ids: from the dense rows, or with the TT's rows where the plan has them."""
    spec = bundle.plan.model.tables[name]
    weights, known = SeededWeights(3), make.profile(make.log()).tables[name].ids.tolist()
    told = bundle.tables[name]
    cores = [bundle.array(f"tables/{told['number']}.core{k}.npy") for k in range(1, told["cores"] + 1)]
    offsets = chunk.edges(name)
    out = np.zeros((chunk.samples, spec.dim))
    for k in range(chunk.samples):
        rows = []
        for key in chunk.ids[name][offsets[k]:offsets[k + 1]].tolist():
            row = {"index": key, "modulo": key % spec.rows,
                   "vocabulary": known.index(key) if key in known else spec.rows - 1}[spec.ids]
            word = int(bundle.words(name)[row])
            rows.append(tt_rows(cores, np.array([word & (1 << 30) - 1]))[0] if word >> 30 == 1 and not dense
                        else weights.rows(spec, np.array([row]))[0].astype(np.float64))
        if rows:
            out[k] = {"sum": np.sum, "mean": np.mean, "max": np.max}[spec.mode](rows, axis=0)
    return out


def test_vectors_and_predictions(made, log, oracles):
    (chunk,) = batches(log, 70, 100)
    chunk.ids["user/id"][:5] = [1, 2, 3, 4, 5]      # nobody has counted these
    with Cards(made) as cards:
        done = cards.infer(chunk, chunk.values["dense"])
        assert done.samples == 70 and set(done.cycles) == {0, 1, 2, 3} and len(oracles.cards) == 4
    assert all(card.closed for card in oracles.cards)
    for name in make.SPLIT:
        np.testing.assert_allclose(done.vectors[name], by_hand(made, chunk, name, dense=False), rtol=1e-5, atol=1e-7)
        words = made.remap(name)(chunk.ids[name]) >> 30
        assert done.rows[name].tolist() == [int((words == place).sum()) for place in range(3)]
    features = np.stack(list(done.vectors.values()), axis=1)
    np.testing.assert_allclose(done.predictions, made.network()(chunk.values["dense"], features), rtol=1e-4, atol=1e-5)


def test_a_log_is_served(made, log, oracles):
    said = []
    done = verify(made, log, 100, batch=32, weights=SeededWeights(3), say=said.append)
    assert (done.samples, done.batches, done.vectors, done.different) == (100, 4, 300, "")
    assert done.unseen == {"user/id": 0} and not done.notes
    assert said[-1] == "100 of 100 samples" and done.predictions.shape == (100, 1)
    (chunk,) = batches(log, 100, 100)
    for name in make.SPLIT:
        dense = by_hand(made, chunk, name, dense=True)
        wanted = by_hand(made, chunk, name, dense=False)
        np.testing.assert_allclose(done.distance[name], np.linalg.norm(wanted - dense) / np.linalg.norm(dense),
                                   rtol=1e-3, atol=1e-6)
    assert done.distance["user/id"] > 0.1 and done.distance["town"] < 1e-6
    # The plan is of batches of 64. Card 0: 2e-5, 1e-6 and 4e-4 s of its memories, the SSD's with 1e-4 s for the first
    # page of each of these four batches, all of which need one, the host's time between two runs included.
    steady = np.array([3e-4, 1e-5, 4e-5, 4e-5]) * 250e6 * 100 / 64 + [4 * 1e-4 * 250e6, 0, 0, 0]
    np.testing.assert_allclose([done.steady[k] for k in range(4)], steady)
    np.testing.assert_allclose([done.expected[k] for k in range(4)],
                               steady - [4 * Device.load("smartssd").between_s * 250e6, 0, 0, 0])
    assert summary(done) == (f"300 pooled vectors and 100 predictions (mean {done.predictions.mean():.4f}): every bit "
                             "equal to the oracle's")


@pytest.mark.turns(1)
@pytest.mark.parametrize("forms", [("float16",) * 3, ("float16", "float32", "float16"), ("bfloat16",) * 3])
def test_vectors_in_half_precision_go_to_the_network_as_they_are(log, tmp_path, monkeypatch, forms):
    """Where all are float16; every bit is the oracle's, and that of a network which takes them as float32."""
    plan = make.narrow(dict(zip(make.SPLIT, forms, strict=True)), key="results")
    bundle = write(tmp_path / "b", plan, make.profile(log), SeededWeights(3))
    make.Opened(bundle, monkeypatch)
    done, (chunk,) = verify(bundle, log, 40), batches(log, 40, 40)
    make.Opened(bundle, monkeypatch)
    with Cards(bundle) as cards:
        beats = {net.compiler.plan.inputs_beats for net in cards.mlp.values()}
        found = cards.infer(chunk, chunk.values["dense"])
        features = np.stack(list(found.vectors.values()), axis=1)
        with MlpNetwork(bundle.network(), card=OracleCard(mlp_core(cards.mlp[2].config)), preset="tiny",
                        batch=32) as net:
            wide = np.concatenate([net(chunk.values["dense"][part], features[part]) for _, part in cards.shares(40)])
    # A beat of dense features; three features of two beats, or of one.
    assert beats == {1 + 3 * (1 if set(forms) == {"float16"} else 2)} and done.different == ""
    assert found.predictions.tobytes() == wide.tobytes() == done.predictions.tobytes()


def test_ids_that_nobody_has_counted_are_counted_and_said(made, oracles):
    (chunk,) = batches(make.log(), 40, 40)
    ids = {name: each.copy() for name, each in chunk.ids.items()}
    ids["user/id"][:5] = [1, 2, 3, 4, 5]
    strange = of_arrays(ids, chunk.offsets, chunk.values)
    done = verify(made, strange, 40)
    known = len(made.vocabulary("user/id"))
    assert done.unseen == {"user/id": 5} and known < 300 and done.different == ""
    assert done.notes == ("table user/id: 5 of 40 lookups are of ids without a row of their own, as its vocabulary has "
                          "them; they read the last row, which is kept for such ids",)


@pytest.mark.parametrize("card", range(4))
def test_a_wrong_bit_is_seen(made, log, oracles, card):
    oracles.wrong = card
    done = verify(made, log, 40, batch=32)
    assert done.different == f"card {card}, samples 0 on: request 0: 1 vectors differ, the first is 0"
    assert done.distance is None
    assert summary(done).endswith(f": DIFFERENT from the oracle: {done.different}")


def test_a_train_that_the_plan_does_not_reckon_with_is_said(log, tmp_path, monkeypatch):
    given = make.arrays()
    given |= {f"core{k}_user/id": np.ones(shape) for k, shape in enumerate(((1, 8, 4, 3), (3, 8, 4, 1)), 1)}
    np.savez(tmp_path / "w.npz", **given)
    bundle = write(tmp_path / "b", make.plan(), make.profile(log), FileWeights(tmp_path / "w.npz"))
    make.Opened(bundle, monkeypatch)
    done = verify(bundle, log, 40)
    assert done.different == "" and len(done.notes) == 1
    assert done.notes[0].startswith("table user/id: its trained tensor train has row modes (8, 8), ")


def test_batches_of_a_log_are_its_samples():
    log = make.log(50)
    (whole,) = log.chunks(100)
    for batch, samples in ((7, 50), (50, 50), (100, 23), (1, 3)):
        parts = list(batches(log, samples, batch))
        assert [part.samples for part in parts[:-1]] == [batch] * (len(parts) - 1)
        assert sum(part.samples for part in parts) == samples
        for name, ids in whole.ids.items():
            end = whole.offsets[name][samples] if name in whole.offsets else samples
            assert np.array_equal(np.concatenate([part.ids[name] for part in parts]), ids[:end])
        lengths = np.concatenate([np.diff(part.offsets["genre"]) for part in parts])
        assert np.array_equal(lengths, np.diff(whole.offsets["genre"])[:samples])
        assert all(part.offsets["genre"][0] == 0 for part in parts)
    assert list(batches(log, 0, 5)) == []


def test_dense_features():
    ids = {"a": np.zeros(2, np.uint64)}
    assert dense_of(Chunk(0, 2, ids, {}, {"dense": np.ones((2, 3)), "I01": np.ones(2)}), 3)[1] == ""
    found, note = dense_of(Chunk(0, 2, ids, {}, {"I02": np.array([3, -4]), "I01": np.array([np.nan, 7]),
                                                 "label": np.ones(2)}), 2)
    np.testing.assert_allclose(found, [[0, np.log(4)], [np.log(8), 0]], rtol=1e-6)
    assert found.dtype == np.float32 and note == ""
    found, note = dense_of(Chunk(0, 2, ids), 5)
    assert not found.any() and found.shape == (2, 5)
    assert note == "the log has no dense features: the network's 5 are zeros"
    with pytest.raises(ValueError, match="the log has 1 dense features, the network takes 2"):
        dense_of(Chunk(0, 2, ids, {}, {"dense": np.ones(2)}), 2)


def test_logs_that_do_not_fit(made, oracles):
    with pytest.raises(ValueError, match="the log has no table 'genre'; it has user/id"):
        verify(made, of_arrays({"user/id": [1, 2]}, source="b"), 2)
    assert all(card.closed for card in oracles.cards)


def test_ids_past_the_rows(made, oracles):
    log = of_arrays({"user/id": [1, 2], "genre": [1, 2], "town": [3, 57]}, source="b")
    with pytest.raises(ValueError, match=r"table town: the id 57 \(number 1\) is past the table's 57 rows"):
        verify(made, log, 2)


def test_an_empty_log(made, oracles):
    log = of_arrays({"user/id": [], "genre": [], "town": []}, source="b")
    with pytest.raises(ValueError, match="b has no samples"):
        verify(made, log, 2)


@pytest.mark.turns(1, of="flows")
def test_from_a_log_to_vectors_by_a_plan_of_the_planner(log, tmp_path, monkeypatch):
    """Profile, plan, bundle, cards: every lookup where the plan has it, every vector that of the rows."""
    model, profile = make.model(), profiled(log)
    costs = Costs("smartssd", "tiny", 300e6, {1: 8e-9}, 5.6e-11, 7e-11, 2.2e-6, 6e-5, 2.9e-7, 3.2e-10, 1.2e-10,
                  4096, 1 << 16, 16_000, 1 << 22)
    plan = planned(model, profile, costs, cards=3, hot_share=0.9, tt_share=0.3, tt_gain=0.0,
                   explain=False, seconds=0.5)
    plan.save(tmp_path)
    profile.save(tmp_path / "profile.npz")
    bundle = write(tmp_path / "b", *load_inputs(tmp_path), SeededWeights(3))
    assert [card.kind for card in plan.cards] == ["emb", "emb", "mlp"] and bundle.emb_cards == (0, 1)
    assert all(table.ssd_rows for table in plan.tables.values()) and any(t.tt_rows for t in plan.tables.values())
    for number in bundle.emb_cards:
        images = bundle.images(number)
        assert images.pages.nbytes == plan.cards[number].ssd.bytes
        assert images.rows.nbytes < plan.cards[number].dram.bytes <= 16_000      # indices and vectors lie there too
    make.Opened(bundle, monkeypatch)
    done = verify(bundle, log, 300, weights=SeededWeights(3))
    assert (done.samples, done.batches, done.different) == (300, 5, "")
    for name, table in plan.tables.items():
        # Steps of accesses end with a row: a memory has what the plan says, or the rest of one row more.
        heat = profile.tables[name].heat
        most = heat.accesses[0] + heat.total / min(100, model.tables[name].rows)
        for rows, reckoned in ((done.rows[name][0], table.dram.accesses),
                               (done.rows[name][:2].sum(), table.dram.accesses + table.tt.accesses)):
            assert -1e-6 - table.unseen * 300 / 64 <= rows - reckoned * 300 / 64 < most
    make.Opened(bundle, monkeypatch)
    (chunk,) = batches(log, 60, 60)
    with Cards(bundle) as cards:
        found = cards.infer(chunk, chunk.values["dense"]).vectors
    for name in plan.tables:
        np.testing.assert_allclose(found[name], by_hand(bundle, chunk, name, dense=False), rtol=1e-5, atol=1e-7)


@pytest.mark.turns(1, of="flows")
def test_simulated_cards(made, log):
    """Every core Verilated, of two EMB and two MLP cards."""
    done = verify(made, log, 64, weights=SeededWeights(3), device=QUICK, memory="ideal", limit_cycles=500_000)
    assert done.different == "" and done.samples == 64 and done.batches == 1
    assert all(done.cycles[card] > 100 for card in range(4))
    assert done.distance["genre"] < 1e-6 and done.distance["town"] < 1e-6
    twins = verify(made, log, 64, weights=SeededWeights(3), device=QUICK, memory="ideal", card="twin", process=True)
    assert twins.different == "" and twins.cycles == done.cycles and twins.links == done.links


def test_rows_in_narrow_formats_on_simulated_cards(log, tmp_path):
    """From parameters to vectors, on Verilated cores: quantised by FBGEMM's rule, as FBGEMM keeps them, and in half
    precision; each as far from its float32 rows as its format makes it."""
    forms = {"user/id": "int8", "genre": "int4", "town": "float16"}
    given = make.arrays()
    np.savez(tmp_path / "w.npz", **given)
    given["table_genre"] = quantise(given["table_genre"].astype(np.float32), "int4")
    np.savez(tmp_path / "q.npz", **given)
    bundle = write(tmp_path / "b", make.narrow(forms), make.profile(log), FileWeights(tmp_path / "q.npz"))
    done = verify(bundle, log, 64, weights=FileWeights(tmp_path / "w.npz"), device=QUICK, memory="ideal",
                  limit_cycles=500_000)
    assert done.different == "" and done.samples == 64
    assert 1e-5 < done.distance["town"] < 5e-4 and 0.01 < done.distance["genre"] < 0.2
