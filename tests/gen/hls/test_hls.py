"""The C++ for Vitis HLS: compiled by g++ and played against the oracle, bit for bit; nothing that no hardware has."""

import os
import re
import shutil
import subprocess
from collections import Counter
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from gen.compiler.emb import encode, load_instruction
from gen.hls import project
from gen.hls.vectors import UNTOUCHED, Vectors, emb_case, emb_start, vectors
from gen.rtl.config import load, names
from golden.emb.core import Emb, Memory
from hw.isa import EMB
from tests.support.command import call
from tests.support.emb_programs import PAGE, Drawn, Programs, images
from tests.support.hls_subset import offences

SEED = int(os.environ.get("HOTRAIL_SEED") or os.environ.get("HOTRAIL_FIRST_SEED") or "1")
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
TINY = load("tiny")
PRESETS = [name for name in names() if load(name).cores.keys() & project.UNITS.keys()]
LOAD = EMB.instruction("LOAD").opcode
ROWS_BEATS, RING_PAGES, PAGES = 512, 8, 11


@cache
def contents(preset):
    """The folder's files."""
    cores = {name: config for name, config in load(preset).cores.items() if name in project.UNITS}
    return project.contents(cores, SEED)


def built(folder, preset, *switches):
    """The folder of a preset with its simulation compiled; the program."""
    put(folder, contents(preset))
    target = re.search(r"csim_bench\S*", subprocess.run(["make", "-n", "csim", *switches], cwd=folder, check=True,
                                                        capture_output=True, text=True).stdout)[0]
    done = subprocess.run(["make", target, "CXXFLAGS=-O2 -Werror", *switches], cwd=folder, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / target


def played(program, folder, *arguments):
    """What the program says of the vectors in a folder; its code."""
    done = subprocess.run([program, folder, *arguments], capture_output=True, text=True)
    return done.stdout + done.stderr[-3000:], done.returncode


def equal(program, folder):
    """Plays the vectors; cases by unit, all of which are equal."""
    said, code = played(program, folder)
    assert code == 0 and said.endswith("all equal\n"), said
    return {name: int(number) for name, number in re.findall(r"(?m)^(\w+): (\d+) cases$", said)}


def put(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return built(tmp_path_factory.mktemp("tiny"), "tiny")


def test_units_and_kernel_are_the_oracle(tiny):
    cases = equal(tiny, tiny.parent / "vectors")
    assert cases.keys() == {"fp32", "pooling", "tt", "emb", "mlp", "hotline"} and all(cases.values())


@pytest.mark.regress
@pytest.mark.parametrize("preset", PRESETS)
def test_of_every_preset(preset, tmp_path):
    """With sanitizers, 30 draws."""
    program = built(tmp_path, preset, "SANITIZE=1")
    cores = {name: config for name, config in load(preset).cores.items() if name in project.UNITS}
    for seed in range(SEED, SEED + 30):
        equal(program, put(tmp_path / "drawn", vectors(cores, seed)))


@pytest.mark.regress
@pytest.mark.parametrize("preset", [name for name in PRESETS if "emb" in load(name).cores])
def test_tables_of_any_bits(preset, tmp_path):
    """Descriptors and cores as no compiler makes them, with sanitizers."""
    put(tmp_path, contents(preset))
    program = tmp_path / "hostile"
    subprocess.run(["g++", "-std=c++14", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I.",
                    "-Icsim", "-Wno-unknown-pragmas", "-o", program, Path(__file__).with_name("tt_hostile.cpp")],
                   cwd=tmp_path, check=True)
    for seed in range(SEED, SEED + 30):
        said, code = played(program, str(seed))
        assert code == 0 and "hostile: 200 cases" in said, said


@pytest.mark.regress
@pytest.mark.parametrize("switches", [["STD=c++17"], ["CXX=clang++"], ["CXX=clang++", "STD=c++17", "SANITIZE=1"]],
                         ids=" ".join)
def test_with_another_compiler(switches, tmp_path):
    if "CXX=clang++" in switches and not shutil.which("clang++"):
        pytest.skip("needs clang++")
    for preset in PRESETS:
        program = built(tmp_path / preset, preset, *switches)
        equal(program, program.parent / "vectors")


@pytest.mark.regress
def test_as_co_simulation_calls_it(tmp_path):
    """Without a host beside the kernel: programs that need one are left aside, all others are equal."""
    program = built(tmp_path, "tiny", "CXXFLAGS=-O2 -DHOTRAIL_COSIM")
    equal(program, tmp_path / "vectors")


def side_by_side(folder, depth=None):
    """The simulation of `tiny` with a thread for each process of BAGS and streams of their depths, or of `depth`."""
    text = contents("tiny")["emb_bags.h"].decode()
    head, body, tail = re.split(r"(?s)(?<=#pragma HLS dataflow\n)(.*?)(?=\n})", text, maxsplit=1)
    body, streams = re.subn(r'\("(\w+)"\);\n#pragma HLS stream variable=\1 depth=(\d+)',
                            lambda found: f'("{found[1]}", {depth or found[2]});', body)
    body, calls = re.subn(r"(?m)^    (\w+\([\w, ]+\);)$", r"    threads.emplace_back([&] { \1 });",
                          re.sub(r",\n +", ", ", body))
    assert (streams, calls) == (11, 8)
    join = "\n    for (std::thread &thread : threads) thread.join();"
    put(folder, {**contents("tiny"), "csim/hls_stream.h": Path(__file__).with_name("bounded_stream.h").read_bytes()})
    (folder / "emb_bags.h").write_text(
        f"#include <vector>\n{head}    std::vector<std::thread> threads;\n{body}{join}{tail}", encoding="utf-8")
    subprocess.run(["make", "csim_bench", "CXXFLAGS=-O2 -pthread"], cwd=folder, check=True, capture_output=True)
    return folder / "csim_bench"


@pytest.mark.regress
def test_processes_that_wait_for_one_another(tmp_path):
    """Streams as deep as their pragmas say, then as a beat has words; of two words the lengths of a beat block."""
    drawer = Drawer(SEED)
    drawer.draw(40, False)
    drawer.draw(80, True)
    # Behind a row of a tensor train, which is held back, more rows than streams hold.
    rows, beats = 2000, drawer.images.tables[0].dim // drawer.words
    inputs = np.zeros(drawer.words + rows, np.uint32)
    inputs[[0, drawer.words]] = rows, 1 << 30
    words = encode("BAGS", {"count": 1, "lengths": 0, "indices": 1, "indices_count": rows, "dram_rows": 1, "tt_rows": 1,
                            "row_beats": beats, "chunk_rows": 1, "out_stride": beats})
    assert drawer.case(Drawn(words[None], inputs, beats, 0, 0)) == 0
    put(tmp_path / "drawn", {"emb.bin": drawer.out.data})
    program = side_by_side(tmp_path / "own")
    assert equal(program, program.parent / "vectors")["emb"]
    assert equal(program, tmp_path / "drawn")["emb"]
    program = side_by_side(tmp_path / "shallow", TINY.cores["emb"].words)
    equal(program, tmp_path / "drawn")
    said, code = played(side_by_side(tmp_path / "shallower", 2), tmp_path / "drawn")
    assert code == 3 and "nothing goes on" in said


@pytest.mark.regress
def test_at_the_widths_of_the_hardware(tmp_path):
    """With AMD's ap_int, out of the package hls4ml: no value passes its width."""
    package = find_spec("hls4ml")
    assert package and package.submodule_search_locations
    headers = Path(package.submodule_search_locations[0]) / "templates" / "vivado" / "ap_types"
    for preset in PRESETS:
        program = built(tmp_path / preset, preset, f"AP={headers}")
        equal(program, tmp_path / preset / "vectors")


class Drawer:
    """Cases of programs that nobody compiles."""

    def __init__(self, seed):
        config = TINY.cores["emb"]
        self.random, self.words = np.random.default_rng(seed), config.words
        self.images = images(self.random, config)
        self.rows = self.random.standard_normal(ROWS_BEATS * self.words).astype(np.float32).view(np.uint32)
        self.pages = self.random.standard_normal((PAGES, PAGE // 4)).astype(np.float32).view(np.uint32)
        self.ring_beats = RING_PAGES * PAGE // config.beat_bytes
        self.page_beats = PAGE // config.beat_bytes
        self.oracle = Emb.of(config, self.images.cores)
        self.programs = Programs(self.random, self.images, rows_beats=ROWS_BEATS, ring_beats=self.ring_beats)
        self.out, self.codes = Vectors(), Counter()
        emb_start(self.out, self.rows, self.ring_beats)
        self.load()

    def load(self):
        words = load_instruction(self.images.load, self.images.load_beats)[None]
        assert self.case(Drawn(words, self.images.load.reshape(-1).copy(), 0, 0, 0)) == 0

    def case(self, drawn):
        outputs = np.full(drawn.outputs_beats * self.words, UNTOUCHED, np.uint32)
        code = emb_case(self.out, self.oracle, Memory(
            drawn.words.reshape(-1), drawn.inputs, outputs, self.rows, self.pages[:drawn.pages].reshape(-1),
            drawn.first, self.ring_beats), page_beats=self.page_beats)
        self.codes[code] += 1
        if (code or drawn.mistake) and (drawn.words[:, 0] & 0xFF == LOAD).any():
            self.load()
        return code

    def draw(self, count, wrong):
        for _ in range(count):
            self.case(self.programs.draw(wrong))


@pytest.mark.parametrize("unit", ["fp32", "pooling", "tt", "emb", "mlp", "hotline"])
def test_a_wrong_bit_is_noticed(tiny, tmp_path, unit):
    """In a word of what is wanted: the file's last, or, of the kernel, its last counter before what changed."""
    data = bytearray(Drawer(SEED).out.data if unit == "emb" else contents("tiny")[f"vectors/{unit}.bin"])
    data[-8 if unit == "emb" else -4] ^= 1
    said, code = played(tiny, put(tmp_path, {f"{unit}.bin": bytes(data)}))
    assert code == 1 and "FAILED: 1 words differ" in said, said


def test_programs_that_nobody_compiles(tiny, tmp_path):
    """What hw.isa allows is right, what it does not allow is refused with the RTL's code."""
    drawer = Drawer(SEED)
    drawer.draw(40, False)
    drawer.draw(80, True)
    assert len(drawer.codes) > 4, drawer.codes
    cases = equal(tiny, put(tmp_path, {"emb.bin": drawer.out.data}))
    assert cases["emb"] == sum(drawer.codes.values())


def test_a_host_that_fills_too_far(tiny, tmp_path):
    drawer = Drawer(SEED)
    inputs = np.zeros(2 * drawer.words, np.uint32)
    inputs[[0, drawer.words]] = 1, 2 << 30 | 5
    words = encode("BAGS", {"count": 1, "lengths": 0, "indices": 1, "indices_count": 1, "dram_rows": 8, "row_beats": 1,
                            "chunk_rows": 1, "out_stride": 1, "ring_count": 16})
    for overfill in (0, drawer.ring_beats + 1):
        outputs = np.full(drawer.words, UNTOUCHED, np.uint32)
        memory = Memory(words, inputs, outputs, drawer.rows, ring_beats=drawer.ring_beats)
        code = emb_case(drawer.out, drawer.oracle, memory, page_beats=drawer.page_beats, overfill=overfill)
        assert code == EMB.code("RING_OVERFLOW" if overfill else "TIMEOUT")
    assert equal(tiny, put(tmp_path, {"emb.bin": drawer.out.data}))["emb"] == 3


@pytest.mark.regress
def test_hostile_programs_leave_no_buffer(tmp_path):
    """With sanitizers: an access outside of a buffer ends the simulation."""
    program = built(tmp_path, "tiny", "SANITIZE=1")
    for seed in range(SEED, SEED + 30):
        drawer = Drawer(seed)
        drawer.draw(20, False)
        drawer.draw(60, True)
        equal(program, put(tmp_path / "drawn", {"emb.bin": drawer.out.data}))


@pytest.mark.parametrize("preset", PRESETS)
def test_nothing_that_cannot_be_hardware(preset):
    cores = {name: config for name, config in load(preset).cores.items() if name in project.UNITS}
    texts = [text.decode() for name, text in project.sources(cores).items() if name not in project.BENCH]
    assert offences("\n".join(texts)) == []


@pytest.mark.parametrize(("text", "what"), [
    ("inline int f(int n) { return n ? f(n - 1) : 0; }", "recursion: f"),
    ("inline int f(int n) { return g(n); }\ninline int g(int n) { return f(n); }", "recursion: f"),
    ("inline void f(int n) { for (int k = 0; k < n; k++) {} }", "a loop without a bound: for (int k = 0; k < n; k++)"),
    ("inline void f() { while (true) {} }", "a loop without a bound: while (true)"),
    ("inline void f() { int *p = new int[3]; }", "heap: new"),
    ("inline void f(int (*g)(int)) {}", "a pointer to a function: (*g)("),
    ("struct A { virtual void f(); };", "a virtual call: virtual"),
    ("inline float f() { return 0; }", "floating point: float"),
    ("inline void f(int n) {\n  while (n--) {\n#pragma HLS loop_tripcount max=3\n  }\n}\ninline void g() {\n"
     "  for (int k = 0; k < N; k++) {\n#pragma HLS pipeline\n    f(k);\n  }\n}",
     "a loop that varies in a pipelined one: for (int k = 0; k < N; k++)"),
])
def test_the_check_finds(text, what):
    assert what in offences(text)


def test_the_folder_is_the_same_twice():
    cores = {"mlp": TINY.cores["mlp"], "hotline": TINY.cores["hotline"]}
    first = project.contents(cores, 3)
    assert first == project.contents(cores, 3)
    assert first["vectors/mlp.bin"] != project.contents(cores, 4)["vectors/mlp.bin"]


def test_pragmas_are_in_the_grammar():
    """Of AMD's published front end: XlxPragmaOption.td of Xilinx/hls-llvm-project, what is public in it."""
    grammar = {"aggregate": "variable", "array_partition": "variable cyclic complete factor dim", "dataflow": "",
               "bind_storage": "variable type impl", "inline": "", "loop_tripcount": "min max", "pipeline": "II",
               "stream": "variable depth", "unroll": "", "interface": "m_axi s_axilite port bundle offset depth "
               "num_read_outstanding num_write_outstanding"}
    for name, text in contents("tiny").items():
        pragmas = re.findall(rb"(?m)^#pragma HLS (\w+)(.*)$", text)
        for pragma, options in ((word.decode() for word in pair) for pair in pragmas):
            assert {option.split("=")[0] for option in options.split()} <= set(grammar[pragma].split()), (name, options)
            assert pragma != "loop_tripcount" or "max=" in options


def test_dataflow_is_canonical():
    """UG1399: declarations and calls alone; a pointer has one process, a stream one that writes and one that reads."""
    text = contents("tiny")["emb_bags.h"].decode()
    head, body = re.search(r"void bags_region\(([^{]*)\) {\n#pragma HLS dataflow\n(.*?)\n}", text, re.DOTALL).groups()
    lines = [line for line in re.sub(r",\s+", ", ", body).splitlines() if not line.startswith("#pragma HLS stream")]
    streams = [name[1] for line in lines if (name := re.fullmatch(r"    hls::stream<\w+> (\w+)\(\"\1\"\);", line))]
    calls = [found[1].split(", ") for line in lines if (found := re.fullmatch(r"    \w+\(([\w, ]+)\);", line))]
    assert len(streams) + len(calls) == len(lines) and len(calls) == 8
    used = Counter(name for call in calls for name in call)
    references = re.findall(r"[*&](\w+)", head)
    assert len(references) == 10 and {name: used[name] for name in references} == dict.fromkeys(references, 1)
    assert {name: used[name] for name in streams} == dict.fromkeys(streams, 2)


def test_the_top_function_has_the_arguments_of_the_isa():
    top = contents("tiny")["hotrail_emb.cpp"].decode()
    declared = re.search(r"hotrail_emb\((.*?)\) {", top, re.DOTALL)[1]
    assert re.findall(r"\*?(\w+)(?:,|$)", declared) == [item.name for item in EMB.arguments]
    assert re.findall(r"m_axi port=(\w+) bundle=(\w+)", top) == [
        (item.name, item.name) for item in EMB.arguments if item.port]
    assert set(re.findall(r"s_axilite port=(\w+)", top)) == {*(item.name for item in EMB.arguments), "return"}


command = partial(call, "hls")


def test_a_compiler_that_is_missing(tiny):
    done = subprocess.run(["make", "-B", "csim", "CXX=nonesuch"], cwd=tiny.parent, capture_output=True, text=True)
    assert done.returncode and "nonesuch is not on the PATH; CXX=... names another C++ compiler\n" in done.stderr
    assert tiny.exists()


def test_the_command(tmp_path):
    text = (project.SOURCES.parents[1] / "rtl" / "presets" / "hotline.toml").read_text("utf-8")
    preset = tmp_path / "mine.toml"
    preset.write_text(text, encoding="utf-8")
    done = command(preset, "--out", tmp_path)
    assert done.exit_code == 0 and str(tmp_path / "mine" / "hls") in done.output, done.output
    there = tmp_path / "mine" / "hls"
    assert not (there / "emb.h").exists() and (there / "vectors" / "hotline.bin").exists()
    (there / "work").mkdir()        # of a tool
    (there / "types.h").write_bytes(b"")
    assert command(preset, "--out", tmp_path).exit_code == 0
    assert (there / "work").exists() and (there / "types.h").stat().st_size
    shutil.rmtree(there)
    there.mkdir()
    (there / "thesis.tex").write_bytes(b"")
    done = command(preset, "--out", tmp_path)
    assert done.exit_code == 1 and "holds something else than `hotrail hls` writes; --out names" in done.output
    assert [path.name for path in there.iterdir()] == ["thesis.tex"]


def test_what_it_cannot_write(tmp_path):
    text = (project.SOURCES.parents[1] / "rtl" / "presets" / "screc.toml").read_text("utf-8")
    preset = tmp_path / "serial.toml"
    preset.write_text(text[:text.index("[mlp]")], encoding="utf-8")
    done = command(preset, "--out", tmp_path)
    assert done.exit_code == 1 and list(tmp_path.iterdir()) == [preset]
    assert "preset serial has no core with units in C++: one of emb, mlp, hotline; it has serial" in done.output
    assert command("nonesuch").exit_code == 1
