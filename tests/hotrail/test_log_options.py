"""A log is named in the same way to every command, and refused with the same sentence."""

import pytest
from click.testing import CliRunner

from gen.data.logs import FORMATS
from hotrail.__main__ import main
from tests.support import log_files


def option(command, name):
    return next(each for each in main.commands[command].params if each.name == name)


@pytest.mark.parametrize("command", ["profile", "model", "plan", "run", "refresh", "scars", "hotline", "demo"])
def test_files_and_format(command):
    log, kind = option(command, "log"), option(command, "kind")
    assert log.nargs == -1 or log.multiple
    assert kind.opts == ["--format"] and kind.help == "The log's format [detected from its ending and first line]."


@pytest.mark.parametrize(("command", "before"), [("profile", ()), ("model", ()), ("scars", ()), ("hotline", ()),
                                                 ("demo", ("--log",))])
def test_an_unknown_format_and_a_missing_file(command, before, tmp_path):
    def said(*arguments):
        done = CliRunner().invoke(main, [command, *arguments])
        assert done.exit_code == 1
        return done.output

    path = str(log_files.written(tmp_path, "a.csv"))
    assert said(*before, path, "--format", "csv") == (
        f"Error: the format 'csv' is unknown; there are {', '.join(FORMATS)}\n")
    assert said(*before, "nowhere.csv") == "Error: nowhere.csv is not a file\n"


def test_several_files_are_one_log(tmp_path):
    path = str(log_files.written(tmp_path, "a.tsv"))
    arguments = ["--memory", "1", "--activations", "500", "--out", str(tmp_path / "out")]
    one, two = (CliRunner().invoke(main, ["scars", *paths, *arguments]) for paths in ([path], [path, path]))
    assert one.exit_code == two.exit_code == 0
    head = f"{path}: {len(set(log_files.USER)) + len(set(log_files.ITEM))} rows accessed, 2.00 lookups per sample"
    assert f"log        {head}" in one.output and f"log        {path}, {head}" in two.output
