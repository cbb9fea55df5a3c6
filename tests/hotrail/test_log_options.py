"""A log is named in the same way to every command, and refused with the same sentence."""

import json

import pytest

from fpga.api.planning import plan
from gen.data.logs import FORMATS
from gen.model.log_options import LogOptions
from gen.model.recommender import Recommender
from hotrail.__main__ import main
from tests.support import log_files
from tests.support.command import call


def option(command, name):
    return next(each for each in main.commands[command].params if each.name == name)


@pytest.mark.parametrize("command", ["profile", "model", "plan", "run", "refresh", "scars", "train-time", "hotline",
                                     "demo"])
def test_files_and_format(command):
    log, kind = option(command, "log"), option(command, "kind")
    assert log.nargs == -1 or log.multiple
    assert kind.opts == ["--format"] and kind.help == "The log's format [detected from its ending and first line]."


@pytest.mark.parametrize(("command", "before"), [("profile", ()), ("model", ()), ("scars", ()), ("hotline", ()),
                                                 ("demo", ("--log",))])
def test_an_unknown_format_and_a_missing_file(command, before, tmp_path):
    def said(*arguments):
        done = call(command, *arguments)
        assert done.exit_code == 1
        return done.output

    path = str(log_files.written(tmp_path, "a.csv"))
    assert said(*before, path, "--format", "csv") == (
        f"Error: the format 'csv' is unknown; there are {', '.join(FORMATS)}\n")
    assert said(*before, "nowhere.csv") == "Error: nowhere.csv is not a file\n"


def test_several_files_are_one_log(tmp_path):
    path = str(log_files.written(tmp_path, "a.tsv"))
    arguments = ["--memory", "1", "--activations", "500", "--out", str(tmp_path / "out")]
    one, two = (call("scars", *paths, *arguments) for paths in ([path], [path, path]))
    assert one.exit_code == two.exit_code == 0
    head = f"{path}: {len(set(log_files.USER)) + len(set(log_files.ITEM))} rows accessed, 2.00 lookups per sample"
    assert f"log        {head}" in one.output and f"log        {path}, {head}" in two.output


COMMANDS = ["profile", "model", "plan", "size", "run", "refresh", "scars", "train-time", "hotline", "demo"]
OPTIONS = ["--format", "--table", "--missing", "--separator", "--fields", "--list", "--no-quotes", "--order-by"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_a_log_by_the_same_options(command):
    given = [each.opts[0] for each in main.commands[command].params if each.opts[0] in OPTIONS]
    assert given == OPTIONS


def a_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("when^who^what\n3^5^a b\n1^6^\n2^7^c\n", "utf-8")
    return path, ["--separator", "^", "--table", "who", "--table", "what", "--list", "what=space", "--order-by", "when"]


def test_how_a_log_was_read_is_said_and_is_in_the_model_file(tmp_path):
    path, options = a_text(tmp_path)
    done = call("profile", path, *options, "--out", tmp_path / "one", "--json")
    assert done.exit_code == 0, done.output
    log = json.loads(done.stdout)["log"]
    assert log["form"] == "text, separated by '^', UTF-8, names in line 1, put in the order of when"
    assert log["tables"] == {"who": "whole numbers", "what": "lists, space-separated"} and log["values"] == ["when"]
    assert [sample["who"] for sample in log["first"]] == [6, 7, 5] and [
        len(sample["what"]) for sample in log["first"]] == [0, 1, 2]
    assert "tables     who (whole numbers), what (lists, space-separated)\n" in done.stderr
    # A model made with the options says them; with it alone the log is read alike.
    model = tmp_path / "m.toml"
    done = call("model", path, *options, "--out", model)
    assert done.exit_code == 0, done.output
    found = Recommender.load(model)
    assert found.log == LogOptions(separator="^", lists=("what=space",), order_by="when")
    again = call("profile", path, "--model", model, "--out", tmp_path / "two", "--json")
    assert json.loads(again.stdout)["log"] == {**log, "tables": {name: log["tables"][name] for name in found.tables}}
    wrong = call("profile", path, "--model", model, "--table", "who")
    assert wrong.output == "Error: --table who: the tables are those of the model; leave out one of them\n"


def test_options_in_python(tmp_path):
    """hotrail.plan takes them, and the plan keeps them for those who read the log by it."""
    path, _ = a_text(tmp_path)
    made = plan(path, out=tmp_path / "plan", preset="tiny", cards=1, dim=16, batch=64, explain=False, seconds=1,
                tables=["who", "what"], separator="^", lists=["what=space"], order_by="when")
    assert made.model.log == LogOptions(separator="^", lists=("what=space",), order_by="when")
    assert type(made).load(tmp_path / "plan").model == made.model


def test_no_command_destroys_what_another_wrote(tmp_path):
    log, folder = str(log_files.written(tmp_path, "a.csv")), tmp_path / "out"
    made = call("profile", log, "--out", folder)
    assert made.exit_code == 0, made.output
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    for command in ("plan", "scars"):
        done = call(command, log, "--out", folder)
        assert done.output == (f"Error: {folder} holds what `hotrail profile` wrote, which `hotrail {command}` would "
                               "destroy; --out names another folder\n")
    assert call("profile", log, "--out", folder).exit_code == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole
    for name, content, writer in (("manifest.json", '{"kind": "bundle"}', "compile"), ("plan.json", "", "plan"),
                                  ("manifest.json", '{"kind": "delta"}', "refresh")):
        other = tmp_path / f"{writer}d"
        other.mkdir()
        (other / name).write_text(content, "utf-8")
        for command in ("profile", "size"):
            load = ["--qps", "9", "--p99-ms", "9"] if command == "size" else []
            done = call(command, log, *load, "--out", other)
            assert done.exit_code == 1 and f"holds what `hotrail {writer}` wrote" in done.output
        assert [path.name for path in other.iterdir()] == [name]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / ".hidden").write_text("", "utf-8")
    assert call("profile", log, "--out", tmp_path / "site").exit_code == 0


def test_results_lie_beside_what_is_made_of_a_preset(tmp_path):
    """build/hotline is that of the preset's Verilog and kernels, and of the command."""
    log, folder = log_files.written(tmp_path, "a.csv"), tmp_path / "hotline"
    (folder / "vitis").mkdir(parents=True)
    (folder / "hotrail_hotline.v").write_text("", "utf-8")
    assert call("profile", log, "--out", folder).exit_code == 0
    assert {"vitis", "hotrail_hotline.v"} < {path.name for path in folder.iterdir()}


def test_no_command_writes_among_the_files_of_a_user(tmp_path):
    log = log_files.written(tmp_path, "a.csv")
    before = sorted(tmp_path.rglob("*"))
    for command in ("plan", "profile", "scars", "train-time"):
        done = call(command, log, "--out", tmp_path)
        assert done.exit_code == 1
        assert done.output == (f"Error: {tmp_path} holds a.csv, which `hotrail {command}` did not write; --out names "
                               "another folder, or one that does not exist\n")
    assert sorted(tmp_path.rglob("*")) == before
    done = call("profile", log, "--out", "/proc/nobody")
    assert done.exit_code == 1 and done.output.startswith("Error: /proc/nobody: ")
