"""hotrail compile and hotrail run: from a plan's folder to cards whose cores are oracles."""

import hashlib

import numpy as np
import pytest

from fpga.api import refreshing
from gen.bundle import Bundle
from gen.delta import Delta
from tests.support import bundles as make
from tests.support.command import call


@pytest.fixture(scope="module")
def load_inputs(tmp_path_factory):
    """A folder with a plan, its profile, a log and parameters."""
    folder = tmp_path_factory.mktemp("load_inputs")
    (chunk,) = make.log().chunks(1000)
    np.savez(folder / "log.npz", **{"idx_user/id": chunk.ids["user/id"], "idx_town": chunk.ids["town"],
                                    "ind_genre": chunk.ids["genre"], "off_genre": chunk.offsets["genre"],
                                    "dense": chunk.values["dense"]})
    make.profile(make.log()).save(folder / "profile.npz")
    digest = hashlib.sha256((folder / "profile.npz").read_bytes()).hexdigest()
    make.plan(profile_sha256=digest).save(folder)
    np.savez(folder / "weights.npz", **make.arrays())
    return folder


def test_compile_and_run(load_inputs, tmp_path, monkeypatch):
    done = call("compile", load_inputs, "--seed", 4, "--out", tmp_path / "b")
    assert done.exit_code == 0, done.output
    assert "table user/id: decomposed tensor train of 60 rows: relative error 0." in done.output
    assert "warning" not in done.output     # random rows stand for nothing
    assert "bytes, parameters random, seed 4" in done.output and Bundle(tmp_path / "b").weights == {"seed": 4}
    cards = make.Opened(Bundle(tmp_path / "b"), monkeypatch)
    done = call("run", tmp_path / "b", load_inputs / "log.npz", "--samples", 100, "--out",
                tmp_path / "report")
    assert done.exit_code == 0, done.output
    assert "100 samples in 2 batches" in done.output and len(cards.cards) == 4
    assert "300 pooled vectors and 100 predictions" in done.output
    assert "every bit equal to the oracle's" in done.output
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    for said in ("samples per second, measured", "every bit equal to the oracle", "Batches through", "user/id"):
        assert said in page
    cards = make.Opened(Bundle(tmp_path / "b"), monkeypatch)
    cards.wrong = 1
    done = call("run", tmp_path / "b", load_inputs / "log.npz", "--samples", 50, "--out",
                tmp_path / "report")
    assert done.exit_code == 1 and "DIFFERENT from the oracle: card 1, samples 0 on" in done.output


def test_parameters_of_a_file(load_inputs, tmp_path, monkeypatch):
    done = call("compile", load_inputs / "plan.json", "--weights", load_inputs / "weights.npz", "--out", tmp_path / "b")
    assert done.exit_code == 0, done.output
    for given, said in (((), "note: the parameters came from weights.npz; name it to see how far"),
                        (("--weights", load_inputs / "weights.npz"), "every bit equal")):
        make.Opened(Bundle(tmp_path / "b"), monkeypatch)
        done = call("run", tmp_path / "b", load_inputs / "log.npz", "--samples", 10, *given, "--out",
                    tmp_path / "report")
        assert done.exit_code == 0 and said in done.output, done.output
    np.savez(tmp_path / "other.npz", **make.arrays(seed=1))
    done = call("run", tmp_path / "b", load_inputs / "log.npz", "--weights", tmp_path / "other.npz")
    assert done.exit_code == 1
    assert f"{tmp_path / 'other.npz'} is not the weights.npz that {tmp_path / 'b'} was made of" in done.output


@pytest.mark.parametrize("keeps", [True, False])
def test_trained_rows_that_a_tensor_train_does_not_keep(load_inputs, tmp_path, monkeypatch, keeps):
    """Rows that are all the same are a tensor train; random ones are none, and every report warns of them."""
    rows = make.arrays()["table_user/id"]
    np.savez(tmp_path / "w.npz", **{**make.arrays(), "table_user/id": np.ones_like(rows) if keeps else rows})
    done = call("compile", load_inputs, "--weights", tmp_path / "w.npz", "--out", tmp_path / "b")
    assert done.exit_code == 0, done.output
    make.Opened(Bundle(tmp_path / "b"), monkeypatch)
    ran = call("run", tmp_path / "b", load_inputs / "log.npz", "--samples", 10, "--out", tmp_path / "report")
    warning = "table user/id: 60 trained rows are stored as a tensor train whose error by accesses is 0."
    for text in (done.output, ran.output, (tmp_path / "report" / "index.html").read_text("utf-8")):
        assert (f"arning: {warning}" in text and "--tt-share 0" in text) != keeps, text


def test_mistakes_are_a_sentence(load_inputs, tmp_path):
    (tmp_path / "plan.json").write_bytes((load_inputs / "plan.json").read_bytes())
    done = call("compile", tmp_path, "--out", tmp_path / "b")
    assert done.exit_code == 1
    assert done.output == f"Error: there is no {tmp_path / 'profile.npz'}: --profile names that of the log\n"
    make.profile(make.log(200)).save(tmp_path / "profile.npz")
    done = call("compile", tmp_path, "--out", tmp_path / "b")
    assert done.output == (f"Error: {tmp_path / 'profile.npz'} is not the profile that the plan beside it was made "
                           "of\n")
    done = call("compile", tmp_path, "--profile", load_inputs / "profile.npz", "--preset", "none", "--out",
                tmp_path / "b")
    assert "there is no preset 'none'" in done.output and not (tmp_path / "b").exists()
    done = call("compile", tmp_path, "--profile", tmp_path / "none.npz", "--out", tmp_path / "b")
    assert done.output == f"Error: {tmp_path / 'none.npz'} cannot be read: No such file or directory\n"
    done = call("run", tmp_path, load_inputs / "log.npz")
    assert done.output == (f"Error: {tmp_path} is no bundle, it is a plan: hotrail compile {tmp_path} --out "
                           "FOLDER\n")
    assert call("run", tmp_path / "plan.json", load_inputs / "log.npz").output == done.output.replace(
        f"{tmp_path} is", f"{tmp_path / 'plan.json'} is")
    (tmp_path / "plan.json").unlink()
    for place, lack in ((tmp_path, "has no manifest.json"), (tmp_path / "profile.npz", "is a file")):
        done = call("run", place, load_inputs / "log.npz")
        assert done.output == (f"Error: {place} is no bundle: it {lack}; name the folder that `hotrail compile` "
                               "wrote\n")
    done = call("run", tmp_path / "none", load_inputs / "log.npz")
    assert done.output == f"Error: there is no bundle {tmp_path / 'none'}: no such folder\n"


@pytest.mark.turns(1, of="processes")
def test_refresh(load_inputs, tmp_path, monkeypatch):
    """A bundle refreshed by its own log moves nothing; by one in which other rows are hot it may say why it cannot."""
    (folder := tmp_path / "plan").mkdir()
    make.profile(make.log()).save(folder / "profile.npz")
    digest = hashlib.sha256((folder / "profile.npz").read_bytes()).hexdigest()
    split = {"user/id": (20, 0, 280), "genre": (43, 0, 0), "town": (0, 0, 57)}
    make.plan(None, split=split, profile_sha256=digest, levels=2, capacity={"dram": 4 << 30}).save(folder)
    assert call("compile", folder, "--out", tmp_path / "b").exit_code == 0
    done = call("refresh", tmp_path / "b", load_inputs / "log.npz", "--within", 99, "--seconds", 1, "--out",
                tmp_path / "d", "--bundle", tmp_path / "after")
    assert done.exit_code == 0, done.output
    assert "rows       no row has to move; a plan made afresh moves" in done.output
    assert Delta(tmp_path / "d").base == Bundle(tmp_path / "b").state
    assert Bundle(tmp_path / "after").state == Delta(tmp_path / "d").state
    done = call("refresh", tmp_path / "b", load_inputs / "log.npz", "--within", 0, "--seconds", 1, "--out",
                tmp_path / "e")
    assert done.exit_code == 1 and "0% more are allowed; allow more, or plan and compile anew" in done.output
    assert not (tmp_path / "e").exists()
    monkeypatch.setattr(refreshing, "measure", None)    # before any work
    for option, what in (("--out", "delta"), ("--bundle", "bundle")):
        done = call("refresh", tmp_path / "b", load_inputs / "log.npz", "--out", tmp_path / "e", option, tmp_path)
        assert done.output == (f"Error: {tmp_path} holds something else than a {what}; name a folder that does not "
                               "exist\n")
    done = call("refresh", load_inputs, load_inputs / "log.npz")
    assert done.exit_code == 1 and "is no bundle, it is a plan: hotrail compile" in done.output
