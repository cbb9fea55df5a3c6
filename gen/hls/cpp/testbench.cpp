// The C simulation: plays vectors of the oracle through the units and the kernel and compares every bit.
//
//     csim FOLDER [TIMES [SEED]]      reads FOLDER/*.bin, written by `hotrail hls`
//
// TIMES: programs are played so often; SEED: of tensor-train tables of any bits, which are tried besides.
//
// Buffers have the size that the kernel is told of, each by itself on the heap: with -fsanitize=address an access
// outside of one ends the simulation. A co-simulation copies HOTRAIL_COSIM_DEPTH beats of each, and no host runs beside
// it: pages land before the run as far as the ring has room.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "config.h"
#if HOTRAIL_HAS_EMB
#include "emb.h"
extern "C" void hotrail_emb(const hotrail::Beat *, uint32_t, const hotrail::Beat *, uint32_t, hotrail::Beat *, uint32_t,
                            hotrail::Beat *, uint32_t, const hotrail::Beat *, uint32_t, hotrail::Beat *, uint32_t);
#endif
#if HOTRAIL_HAS_MLP
#include "mlp.h"
#endif
#if HOTRAIL_HAS_HOTLINE
#include "hotline.h"
#endif

namespace {

using hotrail::Word;

int differing = 0;

// A file of vectors, read word after word.
class Reader {
  public:
    explicit Reader(const std::string &path) : at(0) {
        if (FILE *file = std::fopen(path.c_str(), "rb")) {
            Word word;
            while (std::fread(&word, sizeof word, 1, file) == 1) words.push_back(word);
            std::fclose(file);
        }
    }
    bool more() const { return at < words.size(); }
    Word one() {
        if (!more()) {
            std::fprintf(stderr, "csim: a file of vectors ends early\n");
            std::exit(2);
        }
        return words[at++];
    }
    uint64_t two() {
        const uint64_t low = one();
        return low | uint64_t(one()) << 32;
    }
    std::vector<Word> many(size_t count) {
        std::vector<Word> found;
        for (size_t k = 0; k < count; k++) found.push_back(one());
        return found;
    }

  private:
    std::vector<Word> words;
    size_t at;
};

void expect(const char *what, size_t where, uint64_t found, uint64_t wanted) {
    if (found == wanted) return;
    if (++differing <= 20)
        std::printf("%s %zu: %08llx instead of %08llx\n", what, where, (unsigned long long)found,
                    (unsigned long long)wanted);
}

void report(const char *what, size_t cases) { std::printf("%s: %zu cases\n", what, cases); }

#if HOTRAIL_HAS_EMB

using hotrail::Beat;

Beat beat_of(Reader &in) {
    Beat beat;
    for (int w = 0; w < hotrail::WORDS; w++) beat.word[w] = in.one();
    return beat;
}

std::vector<Beat> beats_of(Reader &in, size_t count) {
    std::vector<Beat> beats;
#if defined(HOTRAIL_COSIM)
    beats.reserve(HOTRAIL_COSIM_DEPTH);
#endif
    for (size_t k = 0; k < count; k++) beats.push_back(beat_of(in));
    return beats;
}

void expect_beats(const char *what, size_t number, hls::stream<Beat> &found, Reader &in, size_t count) {
    expect(what, number, found.size(), count);
    for (size_t k = 0; k < count; k++) {
        const Beat wanted = beat_of(in), beat = found.empty() ? hotrail::zero_beat() : found.read();
        for (int w = 0; w < hotrail::WORDS; w++) expect(what, number, beat.word[w], wanted.word[w]);
    }
}

void test_fp32(Reader in) {
    size_t number = 0;
    for (; in.more(); number++) {
        const Word operation = in.one(), a = in.one(), b = in.one(), c = in.one(), wanted = in.one();
        const Word found = operation == 0 ? hotrail::add(a, b)
            : operation == 1 ? hotrail::maximum(a, b)
            : operation == 2 ? hotrail::reciprocal(a)
            : operation == 3 ? hotrail::narrow(a, hotrail::FLOAT16)
            : operation == 4 ? hotrail::narrow(a, hotrail::BFLOAT16)
            : operation == 5 ? hotrail::widen_float16(a) : hotrail::scaled(a, b, c);
        expect("fp32", number, found, wanted);
    }
    report("fp32", number);
}

void test_pooling(Reader in) {
    size_t number = 0;
    for (; in.more(); number++) {
        const hotrail::PoolJob job = {in.one() != 0, int(in.one()), int(in.one())};
        const Word tokens = in.one(), rows = in.one(), vectors = in.one(), results = in.one();
        hls::stream<hotrail::PoolToken> token_stream;
        hls::stream<Beat> row_stream, vector_stream, o;
        hls::stream<bool> follows;
        for (Word k = 0; k < tokens; k++) {
            const int what = in.one();
            const Word weight = in.one(), factor = in.one();
            const hotrail::PoolToken token = {what == 3 ? hotrail::BAG_END : what == 2 ? hotrail::TT_VECTOR
                                              : what == 1 ? hotrail::SSD_ROW : hotrail::DRAM_ROW, weight, factor};
            token_stream.write(token);
        }
        const hotrail::PoolToken done = {hotrail::ALL_DONE, 0, 0};
        token_stream.write(done);
        for (Word k = 0; k < rows; k++) row_stream.write(beat_of(in));
        for (Word k = 0; k < vectors; k++) vector_stream.write(beat_of(in));
        hotrail::vector_pooling_unit(token_stream, row_stream, vector_stream, o, follows, job);
        expect("pooling rows left", number, row_stream.size() + vector_stream.size(), 0);
        expect_beats("pooling", number, o, in, results);
    }
    report("pooling", number);
}

hotrail::TTMemory tt_memory;

void test_tt(Reader in) {
    if (!in.more()) return;
    const Word loads = in.one(), cases = in.one();
    for (Word k = 0; k < loads; k++) {
        const Word header = in.one();
        hotrail::tt_load(tt_memory, header, beat_of(in));
    }
    for (Word number = 0; number < cases; number++) {
        const int table = in.one(), row_beats = in.one();
        const Word lookups = in.one();
        hls::stream<hotrail::Lookup> lookup_stream;
        hls::stream<Beat> o;
        for (Word k = 0; k < lookups; k++) {
            const Word index = in.one();
            const hotrail::Lookup lookup = {index, in.one() != 0, false};
            lookup_stream.write(lookup);
        }
        const hotrail::Lookup done = {0, false, true};
        lookup_stream.write(done);
        hotrail::tt_unit(lookup_stream, o, tt_memory, table, row_beats);
        expect_beats("tt", number, o, in, size_t(in.one()) * row_beats);
    }
    report("tt", cases);
}

// Descriptors and cores of any bits, as a LOAD may bring them: what the unit says of them is not defined, where it
// reads and writes is. Loops are kept short.
void test_tt_hostile(uint32_t seed) {
    auto draw = [&seed]() { return (seed = seed * 1664525u + 1013904223u) >> 8; };
    auto drawn_beat = [&draw]() {
        Beat beat;
        for (int w = 0; w < hotrail::WORDS; w++) beat.word[w] = draw() ^ draw() << 16;
        return beat;
    };
    for (int time = 0; time < 200; time++) {
        const Word table = draw() % TT_TABLES;
        for (Word part = 0; part < 4; part++) hotrail::tt_load(tt_memory, 2u << 16 | part << 18 | table, drawn_beat());
        for (int k = 0; k < 8; k++) {
            const Word y = draw() & 1, block = TT_GROUPED && (draw() & 1);
            const Word line = draw() % ((y ? TT_Y_LINES : TT_X_LINES) << block) & 0xFFFF;
            hotrail::tt_load(tt_memory, block << 22 | (draw() & 3) << 18 | y << 16 | line, drawn_beat());
        }
        hotrail::Descriptor &d = tt_memory.table[table];
        for (uint32_t *count : {&d.products_first_tiles, &d.products_middle_tiles, &d.last_tiles}) *count &= 7;
        for (uint32_t *count : {&d.products_first_lines, &d.products_middle_lines, &d.last_lines}) *count &= 3;
        hls::stream<hotrail::Lookup> lookups;
        hls::stream<Beat> o;
        const int rows = 1 + draw() % 8, beats = 1 + draw() % EMB_ROW_BEATS_MAX;
        for (int k = 0; k <= rows; k++) {
            const hotrail::Lookup lookup = {draw() ^ draw() << 16, k == rows - 1, k == rows};
            lookups.write(lookup);
        }
        hotrail::tt_unit(lookups, o, tt_memory, table, beats);
        expect("tt hostile", time, o.size(), beats);
    }
    report("hostile", 200);
}

// The host's part: pages land one after the other as far as the ring has room.
struct Host {
    std::vector<Beat> pages, ring, result;
    uint32_t first, page_beats, overfill, landed;

    void fill(Word position) {
        result[HOTRAIL_EMB_RESULT_FILLED / 4 / hotrail::WORDS].word[HOTRAIL_EMB_RESULT_FILLED / 4 % hotrail::WORDS]
            = position & hotrail::POSITION_MASK;
    }
    void step() {
        if (overfill) fill(first + overfill);
        const Word released = hotrail::result_word(result.data(), HOTRAIL_EMB_RESULT_RELEASED);
        while (landed < pages.size()) {
            const Word end = (first + landed + page_beats) & hotrail::POSITION_MASK;
            const Word ahead = (end - released) & hotrail::POSITION_MASK;
            if (ahead > ring.size() && ahead <= hotrail::POSITION_MASK / 2) return;
            for (Word k = 0; k < page_beats; k++)
                ring[(first + landed + k) & (ring.size() - 1)] = pages[landed + k];
            landed += page_beats;
            fill(end);
        }
    }
};

Host host;

uint64_t counter(const std::vector<Beat> &result, int offset) {
    return hotrail::result_word(result.data(), offset)
        | uint64_t(hotrail::result_word(result.data(), offset + 4)) << 32;
}

void test_emb(Reader in, int times) {
    if (!in.more()) return;
    const int counters[] = {HOTRAIL_EMB_RESULT_INSTRUCTIONS, HOTRAIL_EMB_RESULT_BAGS, HOTRAIL_EMB_RESULT_INDICES,
                            HOTRAIL_EMB_RESULT_DRAM_ROWS, HOTRAIL_EMB_RESULT_DRAM_BYTES, HOTRAIL_EMB_RESULT_TT_ROWS,
                            HOTRAIL_EMB_RESULT_TT_BYTES, HOTRAIL_EMB_RESULT_SSD_ROWS, HOTRAIL_EMB_RESULT_SSD_BYTES,
                            HOTRAIL_EMB_RESULT_CACHE_FILLS};
    const Word UNTOUCHED = in.one(), ring_beats = in.one(), timeout = in.one(), rows_words = in.one();
    std::vector<Beat> rows = beats_of(in, rows_words / hotrail::WORDS);
    host.ring = std::vector<Beat>(ring_beats, hotrail::zero_beat());
    size_t number = 0, faults = 0;
    uint64_t lookups = 0;
    double seconds = 0;
    for (; in.more(); number++) {
        const Word count = in.one();
        const std::vector<Beat> program = beats_of(in, count * 16 / hotrail::WORDS);
        const Word inputs_beats = in.one();
        const std::vector<Beat> inputs = beats_of(in, inputs_beats);
        const Word outputs_beats = in.one();
        host.first = in.one();
        host.page_beats = in.one();
        host.overfill = in.one();
        const Word pages = in.one();
        host.pages = beats_of(in, size_t(pages) * host.page_beats);
        std::vector<Beat> outputs, before = rows;
#if defined(HOTRAIL_COSIM)
        outputs.reserve(HOTRAIL_COSIM_DEPTH);
#endif
        for (int time = 0; time < times; time++) {
            rows = before;
            Beat untouched;
            for (int w = 0; w < hotrail::WORDS; w++) untouched.word[w] = UNTOUCHED;
            outputs.assign(outputs_beats, untouched);
            host.result = std::vector<Beat>(HOTRAIL_RESULT_WORDS / hotrail::WORDS, hotrail::zero_beat());
            for (int offset : {HOTRAIL_EMB_RESULT_RELEASED, HOTRAIL_EMB_RESULT_FILLED})
                host.result[offset / 4 / hotrail::WORDS].word[offset / 4 % hotrail::WORDS] = host.first;
            host.landed = 0;
#if defined(HOTRAIL_COSIM)
            host.ring.reserve(HOTRAIL_COSIM_DEPTH);
            host.result.reserve(HOTRAIL_COSIM_DEPTH);
            host.step();
#endif
            const auto start = std::chrono::steady_clock::now();
            hotrail_emb(program.data(), count, inputs.data(), inputs_beats, outputs.data(), outputs_beats, rows.data(),
                        Word(rows.size()), host.ring.data(), ring_beats, host.result.data(), timeout);
            seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            lookups += counter(host.result, HOTRAIL_EMB_RESULT_INDICES);
        }
        const int places[] = {HOTRAIL_EMB_RESULT_CODE, HOTRAIL_EMB_RESULT_INSTRUCTION, HOTRAIL_EMB_RESULT_BAG,
                              HOTRAIL_EMB_RESULT_INDEX, HOTRAIL_EMB_RESULT_DETAIL, HOTRAIL_EMB_RESULT_RELEASED,
                              HOTRAIL_EMB_RESULT_INSTRUCTIONS_DONE};
        const Word code = hotrail::result_word(host.result.data(), HOTRAIL_EMB_RESULT_CODE);
        for (int place : places)
            expect("emb result", number, hotrail::result_word(host.result.data(), place), in.one());
        for (int offset : counters) expect("emb counter", number, counter(host.result, offset), in.two());
        // Of an instruction that ends the run the oracle writes nothing; the kernel may have written whole vectors.
        for (const Beat &beat : outputs)
            for (int w = 0; w < hotrail::WORDS; w++) {
                const Word wanted = in.one();
                if (!(code && wanted == UNTOUCHED)) expect("emb outputs", number, beat.word[w], wanted);
            }
        const Word changed = in.one();
        for (Word k = 0; k < changed; k++) {
            const Word at = in.one();
            before[at / hotrail::WORDS].word[at % hotrail::WORDS] = in.one();
        }
        for (size_t k = 0; k < rows.size(); k++)
            for (int w = 0; w < hotrail::WORDS; w++) expect("emb rows", number, rows[k].word[w], before[k].word[w]);
        faults += code != 0;
    }
    report("emb", number);
    std::printf("emb: %zu of them end early, %llu lookups in %.6f s\n", faults, (unsigned long long)lookups, seconds);
}

#endif

#if HOTRAIL_HAS_MLP

void test_mlp(Reader in) {
    size_t number = 0;
    for (; in.more(); number++) {
        hls::stream<hotrail::MlpTile> tiles;
        hls::stream<hotrail::RowsBeat> x;
        hls::stream<hotrail::ColumnsBeat> y;
        hls::stream<hotrail::ResultRow> o;
        hotrail::MlpTile tile;
        tile.steps = in.one();
        tile.activation = in.one();
        tile.adds = in.one();
        tile.stop = false;
        for (int c = 0; c < hotrail::COLUMNS; c++) tile.addend[c] = in.one();
        tiles.write(tile);
        for (int t = 0; t < tile.steps; t++) {
            hotrail::RowsBeat beat;
            for (int r = 0; r < hotrail::ROWS; r++)
                for (int k = 0; k < hotrail::TERMS; k++) beat.word[r][k] = in.one();
            x.write(beat);
        }
        for (int t = 0; t < tile.steps; t++) {
            hotrail::ColumnsBeat beat;
            for (int c = 0; c < hotrail::COLUMNS; c++)
                for (int k = 0; k < hotrail::TERMS; k++) beat.word[c][k] = in.one();
            y.write(beat);
        }
        tile.stop = true;
        tiles.write(tile);
        hotrail::mlp_unit(tiles, x, y, o);
        expect("mlp rows", number, o.size(), hotrail::ROWS);
        for (int r = 0; r < hotrail::ROWS; r++) {
            const hotrail::ResultRow row = o.read();
            for (int c = 0; c < hotrail::COLUMNS; c++) expect("mlp", number, row.word[c], in.one());
        }
    }
    report("mlp", number);
}

#endif

#if HOTRAIL_HAS_HOTLINE

hotrail::Logger logger;

void test_hotline(Reader in) {
    if (!in.more()) return;
    const Word cases = in.one();
    for (Word number = 0; number < cases; number++) {
        hotrail::LookupJob job;
        job.samples = in.one();
        job.sample_words = in.one();
        job.indices = in.one();
        job.learn = in.one();
        hotrail::AddressRegister registers[HOTLINE_POSITIONS];
        for (int k = 0; k < HOTLINE_POSITIONS; k++) {
            registers[k].first = in.one();
            registers[k].rows = in.one();
            registers[k].pinned = in.one();
        }
        hls::stream<Word> i, o;
        hls::stream<bool> cold;
        for (Word word : in.many(size_t(job.samples) * job.sample_words)) i.write(word);
        const hotrail::LookupFault fault = hotrail::lookup_unit(i, o, cold, logger, registers, job);
        const Word whole = in.one();
        for (Word word : in.many(size_t(whole) * job.sample_words)) expect("hotline", number, o.read(), word);
        for (Word word : in.many(whole)) expect("hotline cold", number, cold.read(), word);
        const Word wanted[] = {in.one(), in.one(), in.one(), in.one()}, found[] = {
            fault.any, fault.sample, fault.position, fault.value};
        for (int k = 0; k < 4; k++) expect("hotline fault", number, found[k], wanted[k]);
    }
    for (int b = 0; b < HOTLINE_BANKS; b++)
        for (int s = 0; s < HOTLINE_SETS; s++)
            for (int w = 0; w < hotrail::WAYS; w++) expect("hotline image", b, logger.way[b][s][w], in.one());
    for (int b = 0; b < HOTLINE_BANKS; b++) expect("hotline counts", b, logger.count[b], in.one());
    report("hotline", cases);
}

#endif

}  // namespace

#if HOTRAIL_HAS_EMB
extern "C" void hotrail_host_step() { host.step(); }
#endif

int main(int count, char **arguments) {
    const std::string folder = count > 1 ? arguments[1] : "vectors";
    const int times = count > 2 ? std::atoi(arguments[2]) : 1;
    (void)times;
#if HOTRAIL_HAS_EMB
    test_fp32(Reader(folder + "/fp32.bin"));
    test_pooling(Reader(folder + "/pooling.bin"));
    test_tt(Reader(folder + "/tt.bin"));
    test_emb(Reader(folder + "/emb.bin"), times);
    if (count > 3) test_tt_hostile(std::atoi(arguments[3]));
#endif
#if HOTRAIL_HAS_MLP
    test_mlp(Reader(folder + "/mlp.bin"));
#endif
#if HOTRAIL_HAS_HOTLINE
    test_hotline(Reader(folder + "/hotline.bin"));
#endif
    std::printf(differing ? "FAILED: %d words differ\n" : "all equal\n", differing);
    return differing != 0;
}
