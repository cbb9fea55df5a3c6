"""--json: one document on stdout, of one style, and nothing else there."""

import inspect
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hotrail
from hotrail import as_json
from hotrail.__main__ import main
from hotrail.boundary import PAGES
from tests.support.command import call
from tests.support.oracle_cards import opened_by

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command.md").read_text("utf-8")


def told(*arguments, code=0):
    """The document that a command prints."""
    done = call(*arguments)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def keys(command):
    """Those that docs/command.md names, of the document's first level."""
    (row,) = re.findall(rf"^\|[^|]*`{command}`[^|]*\|([^|]*)\|$", PAGE[PAGE.index("keys besides"):], re.M)
    return set(re.findall(r"`(\w+)`", row))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    random = np.random.default_rng(5)
    np.savez(folder / "log.npz", idx_a=random.zipf(1.3, 400) % 60, idx_b=random.zipf(1.2, 400) % 90)
    return folder


def test_from_a_log_to_a_run(place, monkeypatch):
    opened_by(monkeypatch)
    log = place / "log.npz"
    found = {"profile": told("profile", log, "--json", "--out", place / "profile"),
             "model": told("model", log, "--json", "--dim", 8, "--batch", 64, "--out", place / "m.toml"),
             "plan": told("plan", log, "--json", "--model", place / "m.toml", "--preset", "tiny", "--cards", 1,
                          "--levels", 2, "--quick", "--out", place / "plan"),
             "compile": told("compile", place / "plan", "--json", "--out", place / "bundle"),
             "run": told("run", place / "bundle", log, "--json", "--samples", 100, "--out", place / "run"),
             "refresh": told("refresh", place / "bundle", log, "--json", "--seconds", 1, "--out", place / "delta")}
    for name, document in found.items():
        assert (document["kind"], document["version"]) == (f"hotrail {name}", as_json.VERSION)
        assert document["hotrail"] == hotrail.__version__
        own = set(document) - {"kind", "version", "hotrail"}
        assert own <= keys(name), f"docs/command.md lacks {own - keys(name)} of {name}"
    assert found["profile"]["tables"]["a"]["accesses"] == 400 and Path(found["plan"]["plan"]).exists()
    assert found["plan"]["gap"] >= 0 and found["plan"]["cards"][0]["kind"] == "emb"
    assert found["refresh"]["rows"] == 0 and Path(found["refresh"]["delta"]).exists()
    assert found["run"]["equal"] and found["run"]["vectors"] == 200
    assert sum(found["run"]["lookups"]["a"].values()) == 100


@pytest.mark.parametrize("arguments, key", [
    (("sbom",), "packages"), (("bench", "--list"), "benches"), (("scars", "{log}"), "memories"),
    (("cards", "--sysfs", "{here}"), "cards")])
def test_others(place, arguments, key):
    given = [each.format(log=place / "log.npz", here=place) for each in arguments]
    document = told(*given, "--json", *(["--out", place / "scars"] if given[0] == "scars" else ()),
                    code=1 if given[0] == "cards" else 0)
    assert key in keys(given[0]) and key in document and document["kind"] == f"hotrail {given[0]}"


def test_an_error_is_no_document(place):
    done = call("plan", place / "none.npz", "--json", "--out", place / "out")
    assert done.exit_code == 1 and done.stdout == "" and done.stderr.startswith("Error: ")


def test_every_command_has_it():
    for name, command in main.commands.items():
        given = any("--json" in option.opts for option in command.params)
        text = inspect.getsource(inspect.unwrap(command.callback))
        if name != "completion":
            assert given and ("result(" in text or "_build(" in text), f"{name} has no --json, or no result"
            assert re.search(rf"\|[^|]*`{name}`[^|]*\|", PAGE[PAGE.index("keys besides"):]), name


def test_every_command_names_a_page():
    for name, command in main.commands.items():
        assert command.epilog == f"More: docs/{PAGES[name]}.md" and (ROOT / "docs" / f"{PAGES[name]}.md").exists()
        assert f"`{name}`" in PAGE or f"hotrail {name}" in PAGE, name


@pytest.mark.parametrize("value, wanted", [
    (float("inf"), None), (np.float32(0.5), 0.5), (np.arange(2), [0, 1]), (Path("a"), "a"),
    ({1: (True,)}, {"1": [True]}),
])
def test_values(value, wanted):
    @dataclass
    class Holder:
        value: object

    assert as_json.plain(Holder(value)) == {"value": wanted}


def test_what_has_no_place():
    with pytest.raises(TypeError, match="<object object at .*> has no place in JSON"):
        as_json.plain({"x": object()})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    done = call("completion", shell)
    assert done.exit_code == 0 and "_HOTRAIL_COMPLETE" in done.stdout


@pytest.mark.parametrize("words, found", [
    ("hotrail prof", ["plain,profile"]), ("hotrail verilog sm", ["plain,smartssd", "plain,smartssd_half"]),
    ("hotrail plan x", ["file,x"]),
    ("hotrail plan x --device smartssd_t", ["plain,smartssd_tuned"]), ("hotrail synth my", ["file,my"])])
def test_what_is_completed(words, found):
    given = words.split(" ")
    done = CliRunner().invoke(main, [], prog_name="hotrail", env={
        "_HOTRAIL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(given) - 1)})
    assert done.output.splitlines() == found
