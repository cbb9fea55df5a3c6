"""The cache heals itself: what was interrupted, cut or changed is made again, and never used."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gen.base import kept, tools
from gen.rtl import cpp, verilator

VERILOG = {"dut.v": "module dut(input clk, output reg [3:0] q); always @(posedge clk) q <= q + 1; endmodule\n"}
MAIN = {"main.cpp": '#include <cstdio>\n#include "Vtop.h"\nint main() { Vtop t; for (int i = 0; i < 10; i++) '
                    '{ t.clk = i & 1; t.eval(); } std::printf("%d\\n", t.q); }\n'}
OTHER = {"dut.v": VERILOG["dut.v"].replace("+ 1", "+ 2")}


def build(texts=VERILOG, **options):
    return verilator.build(texts, "dut", "counter", target="sim", arguments=(), sources=MAIN, opt="-O0", **options)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a compiler that writes a word of each text at once."""
    monkeypatch.setattr(verilator, "CACHE", tmp_path / "sim")

    def compiled(folder, texts, *_):
        (folder / "obj").mkdir(parents=True)
        (folder / "obj" / "rest.o").write_bytes(bytes(1000))
        (folder / "obj" / "sim").write_bytes(b"a model of " + texts["dut.v"].encode())
    monkeypatch.setattr(verilator, "_make", compiled)
    return tmp_path / "sim"


def damaged(path):
    """(what, what is done to a file): each leaves something that is not what was written."""
    data = path.read_bytes()
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1
    return {"missing": lambda: path.unlink(), "empty": lambda: path.write_bytes(b""),
            "cut": lambda: path.write_bytes(data[:len(data) // 2]), "a bit": lambda: path.write_bytes(changed),
            "longer": lambda: path.write_bytes(data + b" "), "another": lambda: path.write_bytes(b"[1, 2]"),
            "a folder": lambda: (path.unlink(), path.mkdir())}


@pytest.mark.parametrize("name", ["built.json", "obj/sim"])
@pytest.mark.parametrize("how", ["missing", "empty", "cut", "a bit", "longer", "another", "a folder"])
def test_a_damaged_model_is_built_again(cache, name, how):
    first = build()
    content = first.target.read_bytes()
    assert build() == verilator.Built(first.folder, first.target, first.build_seconds, cached=True)
    damaged(first.folder / name)[how]()
    again = build()
    assert (again.cached, again.target.read_bytes()) == (False, content)
    assert build().cached


def test_a_stamp_of_another_model_is_none_of_this_one(cache):
    one, other = build(), build(OTHER)
    shutil.copy(other.folder / "built.json", one.folder / "built.json")
    assert not build().cached


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device"), RuntimeError("g++")])
def test_what_ends_a_build_leaves_no_model(cache, monkeypatch, error):
    sound = verilator._make

    def ended(folder, *rest):
        sound(folder, *rest)
        raise error
    monkeypatch.setattr(verilator, "_make", ended)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else RuntimeError) as caught:
            build()
    if isinstance(error, OSError):
        assert "counter cannot be built in" in str(caught.value) and "No space left on device" in str(caught.value)
    assert not list(cache.rglob("obj")) and not list(cache.rglob("built.json"))
    monkeypatch.setattr(verilator, "_make", sound)
    assert not build().cached and build().cached


@pytest.mark.parametrize("says, reason", [
    ("a\nx.cpp:3: error: 'q' is not declared\nmake: *** [x.o] Error 1", "x.cpp:3: error: 'q' is not declared"),
    ("x.s: Error: y\nld: no link: No space left on device\nmore", "ld: no link: No space left on device"),
    ("nothing", "code 3")])
def test_the_first_line_says_why_a_build_failed(tmp_path, says, reason):
    (tmp_path / "error.txt").write_text(f"{says}\n", "utf-8")
    with pytest.raises(RuntimeError) as caught:
        cpp.run(["sh", "-c", "cat error.txt; exit 3"], tmp_path / "log", tmp_path)
    first, *rest = str(caught.value).splitlines()
    assert first == f"building the simulation model failed (sh -c ...): {reason}" and rest[-1] == says.splitlines()[-1]


def test_tunables_that_the_user_has_set_stay(tmp_path, monkeypatch):
    given = []

    def run(*_, **variables):
        given.append(variables["GLIBC_TUNABLES"])
        raise RuntimeError("that is enough")
    monkeypatch.setattr(verilator, "CACHE", tmp_path)
    monkeypatch.setattr(cpp, "run", run)
    for value in ("", "glibc.malloc.arena_max=1"):
        monkeypatch.setenv("GLIBC_TUNABLES", value)
        with pytest.raises(RuntimeError, match="that is enough"):
            build()
    ours = "glibc.malloc.tcache_count=65535"
    assert given == [ours, f"{ours}:glibc.malloc.arena_max=1"]


def test_only_what_is_used_of_a_model_is_kept(cache):
    (runs := build().folder / "runs" / "of somebody").mkdir(parents=True)
    assert not build(fresh=True).cached and runs.exists()
    assert not list(cache.rglob("*.o"))


def test_a_read_only_folder_with_the_model_in_it(cache, monkeypatch):
    """Where nothing can be written: no lock, no run's folder."""
    from verif.bench import runner
    built = build()
    shutil.rmtree(cache / "locks")
    (cache / "locks").write_text("no folder, so that nobody, root neither, can write in it", "utf-8")
    (built.folder / "runs").write_text("neither", "utf-8")
    assert build().cached
    work = runner._work(built.folder / "runs" / "one")
    assert work.is_dir() and not work.is_relative_to(cache)
    work.rmdir()
    monkeypatch.setattr(verilator, "CACHE", cache / "locks")
    with pytest.raises(RuntimeError, match=r"the simulation model counter cannot be built in .*locks: .*HOTRAIL_BUILD"):
        build()


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "a bit", "longer", "another", "a folder"])
def test_a_damaged_conversion_is_made_again(tmp_path, how):
    path, made = tmp_path / "kept" / "one", []

    def make():
        made.append(1)
        return [{"a.v": "module a; endmodule"}, {"ports": {}}]
    assert kept.remembered(path, make) == kept.remembered(path, make) and len(made) == 1
    damaged(path)[how]()
    assert kept.remembered(path, make) == make()
    if how != "a folder":       # nothing can be written there, which costs time alone
        made.clear()
        assert kept.remembered(path, make) and not made
    assert [file.name for file in path.parent.iterdir()] == ["one"]


def forget_tools():
    """They are looked at once in a process."""
    tools.compiler.cache_clear()
    tools.versions.cache_clear()


def test_tools_that_are_missing_are_named(cache, monkeypatch, tmp_path):
    forget_tools()
    tools.environment(), tools.verilator()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        with pytest.raises(RuntimeError, match=r"g\+\+ is missing, .* install it \(on Debian: apt-get install g\+\+\)"):
            build()
        with pytest.raises(RuntimeError, match="make is missing, .*apt-get install make"):
            cpp.compile_model(tmp_path, [], cpp.Options("sim"), cache=tmp_path, log=tmp_path / "log")
    finally:
        forget_tools()


def test_models_of_another_system_are_others(monkeypatch):
    """A shared folder: what another processor's instructions or another system's libraries are in is never taken."""
    flags = []
    for cpu in ("flags\t: popcnt bmi1 bmi2 avx2 sse2", "flags\t: popcnt sse2"):
        cpp.model_flags.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_text", lambda *_, cpu=cpu: cpu)
            flags.append(" ".join(cpp.model_flags()))
    cpp.model_flags.cache_clear()
    assert "-mavx2" in flags[0] and "-m" not in flags[1]
    here = tools.versions()
    for name, other in (("machine", "riscv64"), ("libc_ver", ("musl", "1.2"))):
        forget_tools()
        with monkeypatch.context() as patch:
            patch.setattr(tools.platform, name, lambda other=other: other)
            assert tools.versions() != here
    forget_tools()


def test_the_key_holds_what_goes_into_a_model(cache, monkeypatch):
    """Who runs `make demo` and then `make test` has more packages than before, and the same models."""
    first = build()
    monkeypatch.setattr(sys, "version", "3.13.1 (another build)")
    monkeypatch.setattr("importlib.metadata.version", lambda package: "9.9.9")
    forget_tools()
    assert build().folder == first.folder and build().cached


SLEEPERS = "sleep 417 & (sleep 418 & wait) & echo $$ >started; wait"


def alive(folder):
    """Processes that work in a folder."""
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and _works_in(pid) == str(folder)]


def _works_in(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd") if "sleep" in Path(f"/proc/{pid}/cmdline").read_text("utf-8") else ""
    except OSError:
        return ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_programs_end_with_whoever_called_them(tmp_path, number):
    code = f"from gen.base.tools import call; call(['sh', '-c', {SLEEPERS!r}], cwd={str(tmp_path)!r})"
    asked = subprocess.Popen([sys.executable, "-c", code], cwd=verilator.ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(alive(tmp_path)) < 3 and time.monotonic() < deadline:
        time.sleep(.02)
    assert len(alive(tmp_path)) >= 3
    begin = time.monotonic()
    asked.send_signal(number)
    assert asked.wait(30) == -number
    assert time.monotonic() - begin < 10        # it is 0.1 s; a loaded machine may take its time
    while alive(tmp_path) and time.monotonic() < deadline:
        time.sleep(.02)
    assert not alive(tmp_path)


def test_a_call_is_a_run(tmp_path):
    done = tools.call(["sh", "-c", "cat; exit 3"], input="asked\n", cwd=tmp_path, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (3, "asked\n")
    with pytest.raises(FileNotFoundError):
        tools.call(["./no such program"])


@pytest.mark.regress
def test_a_real_model_heals(tmp_path, monkeypatch):
    monkeypatch.setattr(verilator, "CACHE", tmp_path)
    for part in ("sim", "libverilated.a", "common.h.gch"):
        built = build()
        assert subprocess.run([built.target], capture_output=True).stdout == b"5\n"
        file, = tmp_path.rglob(part)
        file.write_bytes(file.read_bytes()[:1000])
        again = build(fresh=part != "sim")
        assert not again.cached and subprocess.run([again.target], capture_output=True).stdout == b"5\n"


@pytest.mark.regress
def test_a_real_build_interrupted_anywhere(tmp_path):
    """SIGINT at many moments: the caller is back at once, no compiler goes on, and nothing is taken for a model."""
    texts, sources = json.dumps(VERILOG), json.dumps(MAIN)
    code = (f"from gen.rtl import verilator; verilator.build({texts}, 'dut', 'counter', target='sim', arguments=(), "
            f"sources={sources}, opt='-O0')")
    for moment in range(12):
        asked = subprocess.Popen([sys.executable, "-c", code], cwd=verilator.ROOT, stderr=subprocess.DEVNULL,
                                 env={**os.environ, "HOTRAIL_BUILD": str(tmp_path)})
        time.sleep(.5 + .4 * moment)
        begin = time.monotonic()
        asked.send_signal(signal.SIGINT if moment % 2 else signal.SIGKILL)
        asked.wait(30)
        assert time.monotonic() - begin < 5
        time.sleep(.2)
        assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _under(pid, tmp_path)]
    subprocess.run([sys.executable, "-c", code], cwd=verilator.ROOT, check=True,
                   env={**os.environ, "HOTRAIL_BUILD": str(tmp_path)})
    target, = tmp_path.glob("sim/counter-*/obj/sim")
    assert subprocess.run([target], capture_output=True).stdout == b"5\n"


def _under(pid, folder):
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder)
    except OSError:
        return False
