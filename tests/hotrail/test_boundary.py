"""The boundary of the command: one sentence for every error, an end at once for every interrupt, outputs whole."""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from gen.base import staging
from gen.rtl import cpp
from hotrail.__main__ import main
from hotrail.boundary import GRACE_S, Aside, Bounded, plain, sentence
from tests.support.command import call

ROOT = Path(__file__).parents[2]


def group(action):
    """A command that does something, behind the boundary."""
    made = Bounded("main")
    made.add_command(click.Command("go", callback=action, params=[click.Argument(["given"], nargs=-1,
                                                                                  expose_value=False)]))
    return made


@pytest.mark.parametrize("error, text", [
    (ValueError("log.csv: line 3: no number"), "log.csv: line 3: no number"),
    (ValueError("two\nlines"), "two ... (--debug shows all)"),
    (ValueError("red \x1b[31m"), "red \\x1b[31m"),
    (FileNotFoundError(2, "No such file or directory", "a.toml"), "a.toml: No such file or directory"),
    (KeyError("x"), "{file}: an error that hotrail does not foresee, KeyError: 'x'; --debug shows where"),
    (RecursionError("deep"),
     "{file}: an error that hotrail does not foresee, RecursionError: deep; --debug shows where"),
    (MemoryError(), "{file}: there is not enough memory; --debug shows where"),
])
def test_an_error_is_one_sentence(tmp_path, error, text):
    file = tmp_path / "log.csv"
    file.touch()

    def fail():
        raise error

    done = CliRunner().invoke(group(fail), ["go", str(file), "--debug"])
    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == "Error: " + text.replace("{file}", str(file))
    assert "Traceback" in done.output and "in fail" in done.output
    done = CliRunner().invoke(group(fail), ["go", str(file)])
    assert done.output == "Error: " + text.replace("{file}", str(file)) + "\n" and done.exit_code == 1


def test_every_command_takes_debug():
    assert all(any("--debug" in option.opts for option in command.params) for command in main.commands.values())


def test_what_comes_from_a_file_is_shown_as_it_stands(tmp_path):
    """Column names with markup, control characters and a formula."""
    names = ("[/red]_id", "[bold]x_id", "bell\x07_id", "$\\frac_id")
    path = tmp_path / "log.csv"
    path.write_text(",".join(names) + "\n" + "".join(f"{k},{k},{k},{k}\n" for k in range(4)), "utf-8")
    done = call("profile", path, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    for name in names:
        assert plain(name) in done.output
    assert "\x07" not in done.output


def test_sentence_of_an_error_without_words():
    assert sentence(ValueError()) == "ValueError"
    assert sentence(OSError("odd")) == "odd"


# ---- outputs ----


def test_outputs_are_whole_or_not_there(tmp_path):
    place = tmp_path / "new" / "out.txt"
    with pytest.raises(KeyError), staging.staged(place) as half:
        half.write_text("half", "utf-8")
        raise KeyError
    assert not place.exists() and list(place.parent.iterdir()) == []
    with staging.staged(place) as half:
        half.write_text("whole", "utf-8")
    assert place.read_text("utf-8") == "whole" and list(place.parent.iterdir()) == [place]


def test_a_folder_replaces_another_at_once(tmp_path):
    place = tmp_path / "made"
    for text in ("one", "two"):
        with staging.staged(place) as half:
            half.mkdir()
            (half / text).write_text(text, "utf-8")
            assert not place.exists() or (place / "one").exists()
    assert [path.name for path in place.iterdir()] == ["two"] and list(tmp_path.iterdir()) == [place]


def test_files_are_moved_together(tmp_path):
    place = tmp_path / "made"
    place.mkdir()
    (place / "kept").write_text("kept", "utf-8")
    (place / "a").write_text("old", "utf-8")
    with pytest.raises(ValueError), staging.together(place) as half:
        (half / "a").write_text("half", "utf-8")
        raise ValueError
    assert (place / "a").read_text("utf-8") == "old"
    with staging.together(place) as half:
        (half / "a").write_text("new", "utf-8")
        (half / "b").write_text("new", "utf-8")
    assert {path.name: path.read_text("utf-8") for path in place.iterdir()} == {"kept": "kept", "a": "new", "b": "new"}
    assert list(tmp_path.iterdir()) == [place]


def test_files_into_the_folder_that_one_stands_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with staging.together(".") as half:
        (half / "a").write_text("new", "utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_is_there_needs_nothing_of_the_one_above(tmp_path):
    """As the root of a disk of its own is."""
    place = tmp_path / "made"
    place.mkdir()
    with staging.together(place) as half:
        assert list(tmp_path.iterdir()) == [place]
        (half / "a").write_text("new", "utf-8")
    assert [path.name for path in place.iterdir()] == ["a"]


def test_a_file_in_a_folder_s_place_is_refused_first(tmp_path):
    (tmp_path / "made").write_text("mine", "utf-8")
    with pytest.raises(NotADirectoryError, match="made"), staging.together(tmp_path / "made"):
        raise AssertionError
    assert (tmp_path / "made").read_text("utf-8") == "mine"


@pytest.mark.parametrize("there", [True, False])
def test_what_a_link_leads_to_is_written(tmp_path, there):
    (tmp_path / "large").mkdir()
    place, file = tmp_path / "link", tmp_path / "file"
    place.symlink_to("large/made")
    file.symlink_to("large/text")
    if there:
        (tmp_path / "large" / "made").mkdir()
        (tmp_path / "large" / "text").write_text("old", "utf-8")
    for way in (staging.together, staging.staged):
        with way(place) as half:
            half.mkdir(exist_ok=True)
            (half / way.__name__).write_text("new", "utf-8")
        assert place.is_symlink() and (tmp_path / "large" / "made" / way.__name__).read_text("utf-8") == "new"
    with staging.staged(file) as half:
        half.write_text("new", "utf-8")
    assert file.is_symlink() and (tmp_path / "large" / "text").read_text("utf-8") == "new"
    assert {path.name for path in tmp_path.rglob("*")} == {"large", "link", "file", "made", "text", "staged"}


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    place = tmp_path / "pipe"
    os.mkfifo(place)
    reader = subprocess.Popen(["sort", "-o", tmp_path / "copy", place])
    try:
        done = call("sbom", place)
        assert done.exit_code == 0, done.output
        assert place.is_fifo() and reader.wait(60) == 0 and b"CycloneDX" in (tmp_path / "copy").read_bytes()
    finally:
        reader.kill()


def test_an_interrupt_waits_for_the_move(tmp_path, monkeypatch):
    """What is being put into its place is put there; then the interrupt comes."""
    move = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (signal.raise_signal(signal.SIGINT), move(a, b)))
    with pytest.raises(KeyboardInterrupt), staging.together(tmp_path / "made") as half:
        for name in "abc":
            (half / name).write_text(name, "utf-8")
    assert len(list((tmp_path / "made").iterdir())) == 3 and list(tmp_path.iterdir()) == [tmp_path / "made"]


# ---- interrupts ----

BUSY = """
import subprocess, sys, time
from gen.base.staging import staged
import click
from hotrail.boundary import Bounded

@click.group(cls=Bounded)
def main(): pass

@main.command()
@click.argument("folder")
def go(folder):
    with staged(folder + "/out.txt") as half:
        half.write_text("half")
        # Children that outlive a plain interrupt, one of them an orphan.
        child = subprocess.Popen(["sh", "-c", "trap '' INT; sleep 600 & sleep 600"], start_new_session=True)
        print("ready", flush=True)
        {busy}
main()
"""
WAYS = {
    "python": "time.sleep(600)",
    "swallowed": "\n        while True:\n            try:\n                time.sleep(600)\n"
                 "            except BaseException: pass",
    "in C": "import ctypes; libc = ctypes.CDLL(None); mask = (ctypes.c_ulong * 16)(2); "
            "libc.sigprocmask(0, mask, None); libc.sleep(600)",
}
INTERRUPTS = {"interrupt": (signal.SIGINT, 130, "Interrupted.\n"), "term": (signal.SIGTERM, 143, "Terminated.\n")}


@pytest.mark.parametrize(("way", "kind"), [*((way, "interrupt") for way in WAYS), ("python", "term"),
                                           ("swallowed", "term")])
def test_an_interrupt_ends_the_command_whatever_it_does(tmp_path, way, kind):
    number, code, words = INTERRUPTS[kind]
    child = subprocess.Popen([sys.executable, "-c", BUSY.replace("{busy}", WAYS[way]), "go", str(tmp_path)], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert child.stdout.readline() == "ready\n"
    children = _children(child.pid)
    assert children
    began = time.monotonic()
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (code, words)
    assert time.monotonic() - began < 10    # 0.5 s where the machine is not busy
    assert list(tmp_path.iterdir()) == []
    assert not any(_alive(pid) for pid in children)


def _children(pid):
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()]
    return found + [more for each in found for more in _children(each)]


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.turns(1, of="processes")
def test_a_reader_that_goes_away_is_no_error(tmp_path):
    log = tmp_path / "log.npz"
    np.savez(log, idx_a=np.arange(50))
    child = subprocess.Popen([sys.executable, "-m", "hotrail", "profile", str(log), "--out", str(tmp_path / "out")],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    child.stdout.close()
    assert (child.stderr.read(), child.wait(60)) == (b"", 141)
    assert (tmp_path / "out" / "profile.npz").exists()


# ---- refused before the work begins ----


@pytest.mark.parametrize("arguments, text", [
    (("hotline", "--batch", 100_000), "Error: batch must be 1 to 32 samples of 1 beats, not 100000\n"),
    (("demo", "--log", "{log}", "--label", "nope"), "Error: {log} has no column 'nope'; its columns are rating"),
    (("demo", "--log", "{log}", "--rank", 0), "rank must be at least 1, not 0"),
    (("demo", "--log", "{log}", "--preset", "screc"), "the preset screc has no [emb]"),
])
def test_what_cannot_be_is_refused_first(tmp_path, monkeypatch, arguments, text):
    log = tmp_path / "log.csv"
    log.write_text("user_id,item_id,rating:float\n" + "".join(f"{k % 7},{k % 11},{k % 5}\n" for k in range(80)))
    for late in ("fpga.api.dispatching.Hotline", "fpga.api.planning.run", "fpga.api.demo._Learning"):
        monkeypatch.setattr(late, lambda *given, **named: pytest.fail("the work has begun"))
    done = call(*(str(each).replace("{log}", str(log)) for each in arguments))
    assert done.exit_code == 1 and text.replace("{log}", str(log)) in done.output
    assert done.output.splitlines()[-1].startswith("Error: ")


def test_an_interrupt_behind_another_error_is_an_interrupt():
    """A library that is being loaded makes an ImportError of it."""
    from hotrail import boundary

    try:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as cause:
            raise ImportError("initialization failed") from cause
    except ImportError as error:
        assert boundary._interrupted(error)
    assert not boundary._interrupted(ImportError("initialization failed"))


def test_what_takes_long_says_that_it_has_begun(tmp_path, capsys, monkeypatch):
    """A library is compiled once, and a person who waits for it is told."""
    source = tmp_path / "a.cpp"
    source.write_text("int one;\n", "utf-8")
    monkeypatch.setattr(cpp.BEGUN, "handlers", [Aside()])
    monkeypatch.setattr(cpp.BEGUN, "level", logging.INFO)
    monkeypatch.setattr(cpp.BEGUN, "_cache", {})
    for said in ("building   twin, with g++: once, for all runs to come\n", ""):
        cpp.library("twin", source, [], ["-O0"], cache=tmp_path / "cache")
        assert capsys.readouterr() == ("", said)


def test_a_child_that_is_ended_does_not_end_the_command():
    """It ends by the signal, and the command lives on beyond the time that an interrupt leaves it."""
    script = f"""
import os, signal, time
from hotrail.boundary import _watched
with _watched():
    ready, begun = os.pipe()
    if not (child := os.fork()):
        os.write(begun, b"1")
        time.sleep(60)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    status = os.waitpid(child, 0)[1]
    time.sleep({GRACE_S} + 0.2)
    print(os.WTERMSIG(status))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "15\n"), done
