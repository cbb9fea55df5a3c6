"""Models of embedding tables and networks, from TOML: what is read, and every sentence of what is refused."""

import re

import pytest

from gen.model.recommender import FOLDER, Recommender, TableSpec
from gen.rtl.config import ConfigError

GOOD = 'about = "x"\ndim = 16\n[tables.a]\nrows = 10\n[tables.b]\nrows = 20\ndim = 8\nids = "modulo"\nmode = "max"\n'


def load(tmp_path, text):
    path = tmp_path / "m.toml"
    path.write_text(text, "utf-8")
    return Recommender.load(path)


def test_a_model(tmp_path):
    model = load(tmp_path, GOOD)
    assert model.name == "m" and model.about == "x" and model.network is None and model.batch == 2048
    assert list(model.tables) == ["a", "b"]
    assert model.tables["a"] == TableSpec("a", 10, 16) and model.tables["a"].bytes == 640
    assert model.tables["b"] == TableSpec("b", 20, 8, "modulo", "max")


def test_a_network_beside_the_file_that_names_it(tmp_path):
    (tmp_path / "net.toml").write_text('about = ""\nbottom = [3, 4]\ninteraction = "dot"\nfeatures = 1\ndim = 4\n'
                                       'top = [2]\nhidden = "relu"\nlast = "none"\n', "utf-8")
    model = load(tmp_path, 'network = "net.toml"\ndim = 4\nbatch = 7\n[tables.a]\nrows = 3\n')
    assert model.network.bottom == (3, 4) and model.network.dim == 4 and model.batch == 7


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.toml")))
def test_models_that_come_with_the_project(name):
    model = Recommender.load(name)
    assert model.name == name and model.about
    assert model.network.features == len(model.tables)
    assert {spec.dim for spec in model.tables.values()} == {model.network.dim}


def test_criteo_is_of_the_published_size():
    assert sum(spec.rows for spec in Recommender.load("criteo_kaggle").tables.values()) == 33_762_577


@pytest.mark.parametrize("change, sentence", [
    (("dim = 16", "dimm = 16"), "m.toml: dimm: unknown key; allowed are about, network, dim, batch, [log], "
                                "[tables.NAME]"),
    (("dim = 16", 'dim = 16\n[log]\nsep = ";"'), "m.toml: [log] sep: unknown key; allowed are format, missing, "
                                                  "separator, fields, lists, quotes, order_by"),
    (("dim = 16", 'dim = 16\n[log]\nmissing = "0"'), "m.toml: [log] missing = '0': must be a whole number"),
    (("dim = 16", "dim = 16\n[log]\nlists = [1]"), "m.toml: [log] lists = [1]: must be a text or a list of texts"),
    (("dim = 16", "dim = 0"), "m.toml: dim = 0: must be a whole number of 1 or more"),
    (("dim = 16", "batch = true\ndim = 16"), "m.toml: batch = True: must be a whole number of 1 or more"),
    (("dim = 16", ""), "m.toml: [tables.a] dim = None: must be a whole number of 1 or more"),
    (("rows = 10", "rows = 1.5"), "m.toml: [tables.a] rows = 1.5: must be a whole number of 1 or more"),
    (("rows = 10", "row = 10"), "m.toml: [tables.a] row: unknown key; allowed are rows, dim, ids, mode, "),
    (('"modulo"', '"hash"'), "m.toml: [tables.b] ids = 'hash': must be one of index, modulo, vocabulary"),
    (('"max"', '"min"'), "m.toml: [tables.b] mode = 'min': must be one of sum, mean, max"),
    (("rows = 10", 'rows = 10\nresults = "half"'),
     "m.toml: [tables.a] results = 'half': must be one of float32, float16, bfloat16"),
    (("rows = 10", 'rows = 10\nrow_format = "fp8"'),
     "m.toml: [tables.a] row_format = 'fp8': must be one of float32, float16, bfloat16, int8, int4"),
    (("rows = 10", "rows = 10\nerror_budget = -1"),
     "m.toml: [tables.a] error_budget = -1.0: must be a number of 0 or more, 0.01 for 1 %"),
    (("rows = 10", "rows = 10\nerror_budget = nan"), "m.toml: [tables.a] error_budget = nan: must be a number of 0 "),
    (("rows = 10", 'rows = 10\nerror_budget = "1 %"'), "m.toml: [tables.a] error_budget = '1 %': must be a number of"),
    (("rows = 10", 'rows = 10\nerror_budget = 0.01\nrow_format = "float32"'),
     "m.toml: [tables.a] row_format = 'float32': error_budget lets the planner choose it; leave out one of them"),
    (("rows = 10", 'rows = 10\ntt_format = "float16"'),
     "m.toml: [tables.a] tt_format = 'float16': must be one of float32, block16"),
    (("rows = 10", 'rows = 10\ndim = 15\nrow_format = "int4"'),
     "m.toml: [tables.a] row_format = 'int4': two values share a byte, so dim = 15 must be even"),
    (("rows = 10", "rows = 10\nhot_share = 1.5"), "m.toml: [tables.a] hot_share = 1.5: must be a number from 0 to 1"),
    ((GOOD[GOOD.index("[tables.a]"):], ""), "m.toml: tables: there must be a [tables.NAME] at least"),
    ((GOOD[GOOD.index("[tables.a]"):], "tables.a = 3"), "m.toml: [tables.a] must be a table of keys, not 3"),
    (("dim = 16", 'dim = 16\nnetwork = "screc_rm9"'), "m.toml: network: there is no model 'screc_rm9'; there are "),
    (("dim = 16", 'dim = 16\nnetwork = "screc_rm3"'), "m.toml: network = 'screc_rm3' has 26 features, there are 2 "
                                                      "columns of tables"),
    (("rows = 10", 'rows = 10\ncolumns = "a"'), "m.toml: [tables.a] columns = 'a': must be a list of names"),
    (("rows = 10", 'rows = 10\ncolumns = ["x", "x"]'), "m.toml: [tables.a] columns = ['x', 'x']: must be names, each "
                                                       "once"),
    (("dim = 16", 'network = "screc_rm3"'), "m.toml: dim: a network needs one width of all features"),
    (("dim = 16", "dim = "), "m.toml: not valid TOML: "),
])
def test_a_model_wrong(tmp_path, change, sentence):
    assert change[0] in GOOD
    with pytest.raises(ConfigError, match="^" + re.escape(sentence)):
        load(tmp_path, GOOD.replace(*change))


def test_no_such_model():
    with pytest.raises(ConfigError, match=r"^there is no model 'nothing'; there are .*criteo_kaggle.*, or give "):
        Recommender.load("nothing")


def test_widths_that_the_network_does_not_have(tmp_path):
    """Features of a network are as wide as its interaction wants them."""
    with pytest.raises(ConfigError, match=r"^m\.toml: \[tables\.b\] dim = 8: the network's features have 16 words$"):
        load(tmp_path, GOOD.replace("dim = 16", 'dim = 16\nnetwork = "movielens"'))


def test_columns_that_look_tables_up(tmp_path):
    text = 'dim = 4\n[tables.a]\nrows = 3\ncolumns = ["seen", "item"]\n[tables.b]\nrows = 5\ncolumns = ["item"]\n'
    model = load(tmp_path, text + "[tables.user]\nrows = 2\n")
    assert model.columns == ("seen", "item", "user")
    assert [feature.key for feature in model.features] == ["seen", "item@a", "item@b", "user"]
    assert [feature.table for feature in model.features] == ["a", "a", "b", "user"]
