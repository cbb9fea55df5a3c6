"""card.xrt and the example host on XRT's noop shim, which takes every call and runs nothing."""

import subprocess

import numpy as np
import pytest

from fpga.api.embedding import EmbeddingBags
from fpga.card import CardError
from gen.rtl import headers
from gen.rtl.headers import KERNELS
from golden.emb.core import Emb
from tests.support import emb_tables as make
from tests.support import xclbins, xrt_noop
from tests.support.emb_card import OracleCard
from tests.support.xrt_noop import PLATFORM, ROOT, metadata

CORES = tuple(KERNELS)


@pytest.fixture
def image(tmp_path):
    """An xclbin of the tiny EMB core."""
    return written(tmp_path)


def written(folder, core="emb"):
    return xclbins.write(folder / f"{core}.xclbin", metadata(core), platform=PLATFORM).path


MEMORY_AND_RUNS = """
import sys
import numpy as np
from fpga import card
from fpga.card import Buffer, CardError, Faults

def refused(sentence, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except CardError as error:
        assert sentence in str(error), f"{error} is not: {sentence}"
    else:
        raise AssertionError(f"not refused: {sentence}")

it = card.open("xrt", core="emb", preset="tiny", xclbin=sys.argv[1])
assert it.clock_mhz == 250 and it.beat_bytes == {"m00_axi": 16, "m01_axi": 16}
rows, ring = it.allocate(100, "rows"), it.allocate(5000, "ring", fill=7, p2p=True)
assert rows.address % 4096 == 0 and ring.address >= rows.address + 4096 and (rows.bytes, ring.bytes) == (100, 5000)
assert not it.read(rows).any() and (it.read(ring) == 7).all()
data = np.arange(25, dtype=np.uint32)
for buffer in (rows, ring):
    it.write(buffer, data[:20], 12)
    it.write(buffer, b"abcd")
    assert (it.read(buffer, np.uint32, 20, 12) == data[:20]).all() and it.read(buffer, count=4).tobytes() == b"abcd"
refused("84 bytes at offset 20 do not fit the 100 bytes of buffer 'rows'", it.write, rows, data[:21], 20)
refused("26 items of uint32 at offset 0 are not all in the 100 bytes", it.read, rows, np.uint32, 26)
refused("there is already a buffer 'rows'", it.allocate, 1, "rows")
refused("buffer 'x' must have at least 1 byte, not 0", it.allocate, 0, "x")
refused("fill must be a byte, 0 to 255, not 256", it.allocate, 1, "x", 256)
refused("no room for buffer 'x' of 4294967296 bytes in a memory of 4294967296 bytes", it.allocate, 1 << 32, "x")
refused("'rows' is no buffer of this card", it.free, Buffer("rows", 0, 100))
it.free(rows)
refused("'rows' is no buffer of this card", it.read, rows)
assert it.allocate(100, "rows").name == "rows" and not it.read(it.allocate(8, "more")).any()
rows = it.allocate(64, "again")

pointers = {name: it.allocate(1024, name) for name in ("program", "inputs", "outputs", "result")}
given = {**pointers, "rows": rows, "ring": ring, "program_count": 1, "inputs_beats": 1, "outputs_beats": 1,
         "rows_beats": 4, "ring_beats": 0, "timeout": 5}
refused("nothing is running", it.wait)
refused("the kernel's argument 'timeout' is missing", it.run, {n: v for n, v in given.items() if n != "timeout"})
refused("the kernel has no argument 'times'; it has program, program_count", it.run, {**given, "times": 1})
refused("argument timeout = 4294967296 does not fit 32 bits", it.run, {**given, "timeout": 1 << 32})
refused("argument rows must be a buffer, not 4096", it.run, {**given, "rows": 4096})
it.run(given)
refused("a run is under way", it.run, given)
refused("buffer 'ring' cannot be given back while the core runs", it.free, ring)
it.free(it.allocate(8, "of the next"))
refused("the stream cannot be changed while the core runs", it.stream, None)
assert it.step(10) is True and it.wait() > 0
assert it.counters()["cycles"] > 0 and it.counters()["violations"] == 0 and it.violations() == ()
it.clear()
assert set(it.counters().values()) == {0} and it.cycles_per_s == 0
assert it.step(3000) is False, "nothing runs"
refused("the abort register of the core on device 0 could not be written", it.abort)    # by the noop shim
it.reset()
refused("reset takes 1 to 10,000 cycles, not 0", it.reset, 0)
it.set_faults(Faults())
refused("a real card makes no faults on purpose", it.set_faults, Faults(lost=(1,)))
it.run(given)
it.close()      # with a run under way, as an exception leaves it
it.close()
refused("the card is closed", it.allocate, 1, "a")
refused("the card is closed", it.read, ring)
refused("the card is closed", it.wait)
with card.open("xrt", core="emb", preset="tiny", xclbin=sys.argv[1]) as it:
    it.allocate(64, "rows")
left = card.open("xrt", core="emb", preset="tiny", xclbin=sys.argv[1])
left.allocate(64, "rows")       # closed by the interpreter's end
print("done")
"""


@pytest.mark.turns(1, of="flows")
@xrt_noop.needed
def test_memory_and_runs(tmp_path, image):
    assert xrt_noop.python(tmp_path, MEMORY_AND_RUNS, image).splitlines()[-1] == "done"


NO_FILE = """
from fpga.card import CardError, libxrt
xrt = libxrt.load()
device = xrt.handle("xrtDeviceOpen", 0, what="no device")
try:
    xrt.load_xclbin(device, "none.xclbin", "device 0")
except CardError as error:
    print(error)
xrt.xrtDeviceClose(device)
"""


@xrt_noop.needed
def test_xrt_s_own_error_numbers(tmp_path):
    """However this version of XRT tells them: by its answer or by errno."""
    assert xrt_noop.python(tmp_path, NO_FILE).splitlines() == [
        "none.xclbin cannot be loaded on device 0: No such file or directory; XRT says why on its error output"]


STREAM = """
import sys, threading, time
import numpy as np
from fpga import card
from fpga.card import CardHang, SsdStream
from gen.rtl.headers import KERNELS

PAGE, BEAT, EMB = 4096, 16, KERNELS["emb"]
it = card.open("xrt", core="emb", preset="tiny", xclbin=sys.argv[1])
names = [item.name for item in EMB.arguments]
buffers = {name: it.allocate(PAGE * (4 if name == "ring" else 1), name, p2p=name in ("ring", "result"))
           for name in names if EMB.argument(name).kind == "pointer"}
content = np.fromfile(sys.argv[2], np.uint8).reshape(-1, PAGE)
pages = np.random.default_rng(1).integers(0, len(content), 40)
first = (1 << 30) - 20 * PAGE // BEAT       # ring positions pass 2**30
places = (first + np.arange(40) * (PAGE // BEAT)) % (1 << 30)
result, ring = buffers["result"], buffers["ring"]
released, filled = (4 * EMB.value(name).word for name in ("released", "filled"))
data = sys.argv[2] if sys.argv[3] == "file" else content
it.stream(SsdStream(data, PAGE, np.stack([pages, places], 1), ring, result.address + released,
                    result.address + filled, BEAT))
seen, wrong = [], []

def core():
    # Looks at every page when it is announced and gives it back.
    for number, place in enumerate(places):
        end = (int(place) + PAGE // BEAT) % (1 << 30)
        while (int(it.read(result, np.uint32, 1, filled)[0]) - end) % (1 << 30) >= 1 << 29:
            time.sleep(0)
        at = int(place) * BEAT % ring.bytes
        if (it.read(ring, count=PAGE, offset=at) != content[pages[number]]).any():
            wrong.append(number)
        it.write(ring, np.zeros(PAGE, np.uint8), at)
        seen.append(number)
        it.write(result, np.array([end], np.uint32), released)

numbers = {item.name: 1 for item in EMB.arguments if item.kind != "pointer"}
it.run({**buffers, **numbers})
assert int(it.read(result, np.uint32, 1, released)[0]) == first
for _ in range(2):
    try:
        it.wait(3_000_000)
        raise AssertionError("done already")
    except CardHang as error:
        assert "its status register cannot be read" in str(error), error   # the shim has none
thread = threading.Thread(target=core, daemon=True)
thread.start()
it.wait(3_000_000_000)
assert seen == list(range(40)) and not wrong, (len(seen), wrong[:5])
assert int(it.read(result, np.uint32, 1, filled)[0]) == (first + 40 * PAGE // BEAT) % (1 << 30)
counters = it.counters()
assert (counters["ssd.pages"], counters["ssd.bytes"]) == (40, 40 * PAGE), counters
it.close()
print("done")
"""


@pytest.mark.turns(1, of="flows")
@xrt_noop.needed
@pytest.mark.parametrize("source", ["file", "array"])
def test_pages_stream_into_the_ring_during_a_run(tmp_path, image, source):
    """The shim's run takes a while; a thread plays the core on the buffers that the drive and the core share."""
    np.random.default_rng(2).integers(0, 256, 32 * 4096, np.uint8).tofile(tmp_path / "pages")
    printed = xrt_noop.python(tmp_path, STREAM, image, tmp_path / "pages", source, delay_us=1_500_000)
    assert printed.splitlines()[-1] == "done"


USERS = """
import sys
import numpy as np
from fpga.card import CardError
from fpga.api.embedding import EmbeddingBags
from fpga.api.hotline import Hotline, Position
from fpga.api.hotline import Table as Trained
from fpga.api.network import MlpNetwork, Network
from gen.compiler.tables import DRAM, SSD, Table

def unwritten(core, count, call):
    try:
        call()
    except CardError as error:
        assert str(error) == (f"the core ended without an error, but its result block counts 0 of {count} "
                              f"instructions: no core, or another than {core}, has run"), error
    else:
        raise AssertionError(f"{core}: a run that computed nothing was taken for one that did")

def options(core):
    return {"card": "xrt", "preset": "tiny", "xclbin": f"{sys.argv[1]}/{core}.xclbin"}

random, pages = np.random.default_rng(1), f"{sys.argv[1]}/pages"
for kind, ssd in ((DRAM, None), (SSD, None), (SSD, pages)):
    values = random.standard_normal((600, 4)).astype(np.float32)
    with EmbeddingBags([Table.place("t", values, np.full(600, kind))], ring_bytes=1 << 14, ssd=ssd,
                       **options("emb")) as bags:
        unwritten("emb", 1, lambda: bags("t", [1, 2, 3], [0]))
        assert bags.last["code"] == 0 and bags.card.clock_mhz == 250
        if ssd:
            assert (np.fromfile(pages, np.uint32) == bags.images.pages.reshape(-1)).all()
matrix = random.standard_normal((16, 8)).astype(np.float32)
unwritten("mlp", 1, lambda: MlpNetwork(Network.gemm(matrix), **options("mlp")))      # it loads its weights by a run
with Hotline([Trained("t", random.standard_normal((40, 4)).astype(np.float32))], [Position("t")],
             **options("hotline")) as hotline:
    indices = np.arange(40).reshape(-1, 1)
    unwritten("hotline", 4, lambda: hotline.learn(indices))
    model = lambda vectors, payload: np.zeros_like(vectors)
    unwritten("hotline", 3, lambda: hotline.train(model, indices, rate=-0.1, batch=8))
print("done")
"""


@pytest.mark.turns(1, of="flows")
@xrt_noop.needed
def test_users_notice_that_no_core_has_run(tmp_path):
    """The shim ends every run well, with a result block of zeros: code OK, and nothing done."""
    for core in CORES:
        written(tmp_path, core)
    assert xrt_noop.python(tmp_path, USERS, tmp_path).splitlines()[-1] == "done"


def test_pages_of_embedding_bags_in_a_file(tmp_path, monkeypatch):
    """What `ssd` names is written and read from; on the oracle, so that the vectors are right too."""
    config, random = make.config(), np.random.default_rng(6)
    table = make.only(random, "items", make.SSD, 200, 6)
    vectors = []
    for ssd in (None, tmp_path / "pages"):
        core = Emb.of(config)
        with EmbeddingBags([table], card=OracleCard(core), preset=config, ssd=ssd) as bags:
            vectors.append(bags("items", np.arange(200).reshape(20, 10)))
            assert isinstance(bags.card.ssd.data, np.ndarray if ssd is None else type(tmp_path))
    assert (vectors[0] == vectors[1]).all() and vectors[0].any()
    assert [path.name for path in tmp_path.iterdir()] == ["pages"]
    for place, sentence in ((tmp_path, "is no file; pages are written into files alone"), ("/dev/null", "is no file"),
                            (tmp_path / "no" / "pages", "the pages cannot be written there: No such file")):
        with pytest.raises(CardError, match=sentence):
            EmbeddingBags([table], card=OracleCard(core), preset=config, ssd=place)
    for error, caught in ((OSError(28, "No space left"), CardError), (KeyboardInterrupt(), KeyboardInterrupt)):
        def fail(_, error=error):
            raise error

        monkeypatch.setattr("fpga.api.embedding.os.fsync", fail)
        with pytest.raises(caught):
            EmbeddingBags([table], card=OracleCard(core), preset=config, ssd=tmp_path / "pages")
        assert [path.name for path in tmp_path.iterdir()] == ["pages"], "no half file stays"


# The example host

@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A folder with the header that the example includes."""
    folder = tmp_path_factory.mktemp("host")
    headers.write(KERNELS["emb"], folder)
    return folder


def compiled(folder, name, *options):
    done = subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", str(folder),
                           str(ROOT / "fpga/vitis/hosts/emb_bags.cpp"), *options, "-o", str(folder / name)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / name


@pytest.fixture(scope="module")
def double(sources):
    """The example on XRT's calls by files."""
    return compiled(sources, "double", "-I", str(ROOT / "tests/xrt_headers"))


@xrt_noop.needed
@pytest.mark.skipif(not xrt_noop.HEADERS, reason="XRT's headers are missing (apt-get install libxrt-dev uuid-dev)")
def test_the_example_host_on_the_noop_shim(tmp_path, sources, image):
    host = compiled(sources, "noop", "-I", str(xrt_noop.HEADERS), "-lxrt_coreutil", "-luuid", "-pthread")

    def run(*arguments):
        done = subprocess.run([str(host), *map(str, arguments)], env=xrt_noop.environment(tmp_path), text=True,
                              capture_output=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    code, out, error = run(image, 4)
    assert code == 1 and out.splitlines() == ["code 0, instructions 0, cycles 0", "vector 0 0 0 0"]
    assert "the core has written no result: none has run" in error
    assert run()[0] == 2
    code, _, error = run(tmp_path / "none.xclbin")
    assert code == 1 and "none.xclbin" in error
    assert run(written(tmp_path, "mlp"))[0] == 1


@pytest.mark.parametrize("states, sentence", [
    ("34", "the core was not done after a second, and was told to stop\n"),
    ("33", "the core was not done after a second, and the core may still be at work: reset the card\n"),
    ("74", "the core was not done after a second, and was told to stop\n"),
    ("66", "XRT has given the run up, and the core may still be at work: reset the card\n"),
    ("88", "XRT has given the run up, and the core may still be at work: reset the card\n")])
def test_the_example_host_stops_a_core_that_hangs(tmp_path, double, states, sentence):
    """States before and after the abort register is written. What XRT has given up may go on."""
    (tmp_path / "done").touch()
    done = subprocess.run([str(double), "an.xclbin"], env={"HOTRAIL_DOUBLE": str(tmp_path), "HOTRAIL_STATES": states},
                          text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence)
    assert (tmp_path / "register.txt").read_text("utf-8") == f"{KERNELS['emb'].abort} 1"


def test_the_example_host_keeps_its_buffers_where_it_cannot_abort(tmp_path, double):
    (tmp_path / "done").touch()
    given = {"HOTRAIL_DOUBLE": str(tmp_path), "HOTRAIL_STATES": "66", "HOTRAIL_REFUSES": "1"}
    done = subprocess.run([str(double), "an.xclbin"], env=given, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (1, "XRT has given the run up (no register), and the core may still be at "
                                                 "work: reset the card\n")


def test_the_example_host_waits_for_an_emulated_core(tmp_path, double):
    (tmp_path / "done").touch()
    given = {"HOTRAIL_DOUBLE": str(tmp_path), "HOTRAIL_MS": "1100", "XCL_EMULATION_MODE": "hw_emu"}
    done = subprocess.run([str(double), "an.xclbin"], env=given, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (1, "the core has written no result: none has run\n")


@pytest.mark.parametrize("arguments, sentence", [
    (["0"], "words of a beat must be 4 to 16, not '0'"), (["3"], "words of a beat must be 4 to 16, not '3'"),
    (["12"], "words of a beat must be a power of two"), (["17"], "words of a beat must be 4 to 16, not '17'"),
    (["abc"], "words of a beat must be 4 to 16, not 'abc'"),
    (["-4"], "words of a beat must be 4 to 16, not '-4'"), (["4x"], "words of a beat must be 4 to 16, not '4x'"),
    (["16", "x"], "number of the card must be 0 to 255, not 'x'"), ([""], "words of a beat must be 4 to 16, not ''"),
    (["9" * 30], f"words of a beat must be 4 to 16, not '{'9' * 30}'")])
def test_the_example_host_takes_numbers_alone(double, arguments, sentence):
    done = subprocess.run([str(double), "an.xclbin", *arguments], text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (1, f"{sentence}\n")


@pytest.mark.parametrize("words", [4, 16])
def test_the_example_host_asks_for_what_it_says(tmp_path, double, words):
    """XRT's calls are doubled by files, the core by the oracle: the vector is right, and every byte was written."""
    def run():
        return subprocess.run([str(double), "an.xclbin", str(words)], env={"HOTRAIL_DOUBLE": str(tmp_path)}, text=True,
                              capture_output=True)

    assert run().stderr == "the arguments are written\n"
    core = OracleCard(Emb(words=words, row_beats_max=16, stripe_beats=8, grid_log2=1, index_bits=20))
    given = {}
    for number, item in enumerate(KERNELS["emb"].arguments):
        if item.kind == "pointer":
            content = np.fromfile(tmp_path / f"{number}.bin", np.uint8)
            assert content.size % 4096 == 0 and not content[2048:].any(), "zeros behind what is meant"
            given[item.name] = core.allocate(content.size, item.name)
            core.write(given[item.name], content)
        else:
            given[item.name] = int((tmp_path / f"{number}.txt").read_text("utf-8"))
    core.run(given)
    for number, item in enumerate(KERNELS["emb"].arguments):
        if item.kind == "pointer":
            core.read(given[item.name]).tofile(tmp_path / f"{number}.bin")
    (tmp_path / "done").touch()
    done = run()
    assert done.returncode == 0, done.stderr
    status, vector = done.stdout.splitlines()
    assert status.startswith("code 0, instructions 1, cycles ")
    want = sum(np.float32(row) + np.arange(words, dtype=np.float32) / 100 for row in (1, 4, 6))
    np.testing.assert_allclose([float(word) for word in vector.split()[1:]], want, rtol=1e-5)
