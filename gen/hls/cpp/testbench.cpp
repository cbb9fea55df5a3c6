// The C simulation: plays vectors of the oracle through the units and the kernel and compares every bit.
//
//     csim FOLDER [TIMES]     reads FOLDER/*.bin, written by `hotrail hls`
//
// TIMES: programs are played so often.
// Buffers have the size that the kernel is told of, each by itself on the heap: with -fsanitize=address an access
// outside of one ends the simulation. A co-simulation copies HOTRAIL_COSIM_DEPTH beats of each, and no host runs beside
// it: pages land before the run, and programs that need one are left aside.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "config.h"
#if HOTRAIL_HAS_EMB
#include "emb.h"
#include "top.h"
#endif
#if HOTRAIL_HAS_MLP
#include "mlp.h"
#endif
#if HOTRAIL_HAS_HOTLINE
#include "hotline.h"
#endif

namespace {

using namespace hotrail;

int differing = 0;

// A file of vectors, read word after word; T: structs of words alone.
class Reader {
  public:
    explicit Reader(const std::string &path) : at(0) {
        if (FILE *file = std::fopen(path.c_str(), "rb")) {
            for (Word word; std::fread(&word, sizeof word, 1, file) == 1;) words.push_back(word);
            std::fclose(file);
        }
    }
    bool more() const { return at < words.size(); }
    template <class T> T next() {
        if (at + sizeof(T) / sizeof(Word) > words.size()) {
            std::fprintf(stderr, "csim: a file of vectors ends early\n");
            std::exit(2);
        }
        T item;
        std::memcpy(&item, &words[at], sizeof item);
        at += sizeof item / sizeof(Word);
        return item;
    }
    Word one() { return next<Word>(); }
    template <class T> std::vector<T> many(size_t count) {
        std::vector<T> found;
        for (size_t k = 0; k < count; k++) found.push_back(next<T>());
        return found;
    }
    template <class T> void fill(hls::stream<T> &stream, size_t count) {
        for (const T &item : many<T>(count)) stream.write(item);
    }

  private:
    std::vector<Word> words;
    size_t at;
};

void expect(const char *what, size_t where, uint64_t found, uint64_t wanted) {
    if (found != wanted && ++differing <= 20)
        std::printf("%s %zu: %08llx instead of %08llx\n", what, where, (unsigned long long)found,
                    (unsigned long long)wanted);
}

// The stream holds these items and no more.
template <class T>
void expect_items(const char *what, size_t number, hls::stream<T> &found, const std::vector<T> &wanted) {
    expect(what, number, found.size(), wanted.size());
    for (const T &item : wanted) {
        if (found.empty()) return;
        const T other = found.read();
        for (size_t w = 0; w < sizeof(T) / sizeof(Word); w++) {
            Word a, b;
            std::memcpy(&a, reinterpret_cast<const char *>(&other) + w * sizeof a, sizeof a);
            std::memcpy(&b, reinterpret_cast<const char *>(&item) + w * sizeof b, sizeof b);
            expect(what, number, a, b);
        }
    }
}

// Plays a file case by case.
void play(const std::string &folder, const char *name, void (*test)(Reader &, size_t)) {
    Reader in(folder + "/" + name + ".bin");
    size_t number = 0;
    for (; in.more(); number++) test(in, number);
    std::printf("%s: %zu cases\n", name, number);
}

#if HOTRAIL_HAS_EMB

void test_fp32(Reader &in, size_t number) {
    const Word operation = in.one(), a = in.one(), b = in.one(), c = in.one(), wanted = in.one();
    expect("fp32", number, operation == 0 ? add(a, b)
           : operation == 1 ? maximum(a, b)
           : operation == 2 ? reciprocal(a)
           : operation == 3 ? narrow(a, FLOAT16)
           : operation == 4 ? narrow(a, BFLOAT16)
           : operation == 5 ? widen_float16(a) : scaled(a, b, c), wanted);
}

void test_pooling(Reader &in, size_t number) {
    const PoolJob job = {in.one() != 0, int(in.one()), int(in.one())};
    const Word tokens = in.one(), rows = in.one(), vectors = in.one(), results = in.one();
    hls::stream<PoolToken> token_stream;
    hls::stream<Beat> row_stream, vector_stream, o;
    hls::stream<bool> follows;
    in.fill(token_stream, tokens);
    in.fill(row_stream, rows);
    in.fill(vector_stream, vectors);
    vector_pooling_unit(token_stream, row_stream, vector_stream, o, follows, job);
    expect("pooling rows left", number, row_stream.size() + vector_stream.size(), 0);
    expect_items("pooling", number, o, in.many<Beat>(results));
}

TTMemory tt_memory;

void test_tt(Reader &in, size_t number) {
    for (Word loads = in.one(); loads; loads--) {
        const LoadHeader header = load_header(in.one());
        tt_load(tt_memory, header, in.next<Beat>());
    }
    const int table = in.one(), row_beats = in.one();
    hls::stream<Lookup> lookups;
    hls::stream<Beat> o;
    for (Word count = in.one(); count; count--) {
        const Word index = in.one();
        lookups.write({index, in.one() != 0, false});
    }
    lookups.write({0, false, true});
    tt_unit(lookups, o, tt_memory, {table, row_beats});
    expect_items("tt", number, o, in.many<Beat>(size_t(in.one()) * row_beats));
}

// A buffer; a co-simulation reads HOTRAIL_COSIM_DEPTH beats of it.
std::vector<Beat> buffer(std::vector<Beat> beats) {
#if defined(HOTRAIL_COSIM)
    beats.reserve(HOTRAIL_COSIM_DEPTH);
#endif
    return beats;
}

// The host's part: pages land one after the other as far as the ring has room.
struct Host {
    std::vector<Beat> pages, ring, result;
    uint32_t first, page_beats, overfill, landed;

    void put(int offset, Word value) { result[offset / 4 / WORDS].word[offset / 4 % WORDS] = value; }
    void step() {
        if (overfill) put(HOTRAIL_EMB_RESULT_FILLED, (first + overfill) & POSITION_MASK);
        while (landed < pages.size()) {
            const Word end = (first + landed + page_beats) & POSITION_MASK;
            const Word ahead = (end - result_word(result.data(), HOTRAIL_EMB_RESULT_RELEASED)) & POSITION_MASK;
            if (ahead > ring.size() && ahead <= POSITION_MASK / 2) return;
            for (Word k = 0; k < page_beats; k++)
                ring[(first + landed + k) & (ring.size() - 1)] = pages[landed + k];
            landed += page_beats;
            put(HOTRAIL_EMB_RESULT_FILLED, end);
        }
    }
};

Host host;

// Programs of one card, which keeps its rows and its tensor-train tables.
void test_emb(const std::string &path, int times) {
    Reader in(path);
    if (!in.more()) return;
    Beat untouched;
    const Word UNTOUCHED = untouched.word[0] = in.one(), ring_beats = in.one(), timeout = in.one();
    for (Word &word : untouched.word) word = UNTOUCHED;
    std::vector<Beat> rows = buffer(in.many<Beat>(in.one() / WORDS));
    host.ring = buffer(std::vector<Beat>(ring_beats, zero_beat()));
    size_t number = 0, faults = 0;
    uint64_t lookups = 0;
    double seconds = 0;
    for (; in.more(); number++) {
        const Word count = in.one();
        const std::vector<Beat> program = buffer(in.many<Beat>(count * HOTRAIL_EMB_INSTRUCTION_WORDS / WORDS));
        const std::vector<Beat> inputs = buffer(in.many<Beat>(in.one()));
        const Word outputs_beats = in.one();
        host.first = in.one();
        host.page_beats = in.one();
        host.overfill = in.one();
        host.pages = in.many<Beat>(size_t(in.one()) * host.page_beats);
        std::vector<Beat> outputs, before = rows;
#if defined(HOTRAIL_COSIM)
        const int plays = host.pages.size() <= ring_beats && !host.overfill ? 1 : 0;
#else
        const int plays = times;
#endif
        for (int time = 0; time < plays; time++) {
            rows = before;
            outputs = buffer(std::vector<Beat>(outputs_beats, untouched));
            host.result = buffer(std::vector<Beat>(HOTRAIL_RESULT_WORDS / WORDS, zero_beat()));
            for (int offset : {HOTRAIL_EMB_RESULT_RELEASED, HOTRAIL_EMB_RESULT_FILLED}) host.put(offset, host.first);
            host.landed = 0;
#if defined(HOTRAIL_COSIM)
            host.step();
#endif
            const auto start = std::chrono::steady_clock::now();
            hotrail_emb(program.data(), count, inputs.data(), Word(inputs.size()), outputs.data(), outputs_beats,
                        rows.data(), Word(rows.size()), host.ring.data(), ring_beats, host.result.data(), timeout);
            seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            lookups += result_word(host.result.data(), HOTRAIL_EMB_RESULT_INDICES);
        }
        for (Word words = in.one(); words; words--) {       // {offset, value} of the result block
            const Word offset = in.one(), wanted = in.one();
            if (plays) expect("emb result", number, result_word(host.result.data(), offset), wanted);
        }
        // Of an instruction that ends the run the oracle writes nothing; the kernel may have written whole vectors.
        const Word code = plays ? result_word(host.result.data(), HOTRAIL_EMB_RESULT_CODE) : 0;
        const std::vector<Beat> wanted = in.many<Beat>(outputs_beats);
        for (size_t k = 0; k < outputs.size(); k++)
            for (int w = 0; w < WORDS; w++)
                if (!(code && wanted[k].word[w] == UNTOUCHED))
                    expect("emb outputs", number, outputs[k].word[w], wanted[k].word[w]);
        for (Word changed = in.one(); changed; changed--) {
            const Word at = in.one();
            before[at / WORDS].word[at % WORDS] = in.one();
        }
        if (!plays) rows = before;
        for (size_t k = 0; k < rows.size(); k++)
            for (int w = 0; w < WORDS; w++) expect("emb rows", number, rows[k].word[w], before[k].word[w]);
        faults += code != 0;
    }
    std::printf("emb: %zu cases\nemb: %zu of them end early, %llu lookups in %.6f s\n", number, faults,
                (unsigned long long)lookups, seconds);
}

#endif

#if HOTRAIL_HAS_MLP

void test_mlp(Reader &in, size_t number) {
    hls::stream<MlpTile> tiles;
    hls::stream<RowsBeat> x;
    hls::stream<ColumnsBeat> y;
    hls::stream<ResultRow> o;
    MlpTile tile = {int(in.one()), int(in.one()), in.one() != 0, false, in.next<ResultRow>()};
    tiles.write(tile);
    in.fill(x, tile.steps);
    in.fill(y, tile.steps);
    tile.stop = true;
    tiles.write(tile);
    mlp_unit(tiles, x, y, o);
    expect_items("mlp", number, o, in.many<ResultRow>(ROWS));
}

#endif

#if HOTRAIL_HAS_HOTLINE

Logger logger;

// Samples through the lookup engine; behind them what the logger holds then.
void test_hotline(Reader &in, size_t number) {
    const LookupJob job = {in.one(), int(in.one()), int(in.one()), in.one() != 0};
    AddressRegister registers[HOTLINE_POSITIONS];
    for (AddressRegister &item : registers) item = {in.one(), in.one(), in.one() != 0};
    hls::stream<Word> i, o;
    hls::stream<bool> cold;
    in.fill(i, size_t(job.samples) * job.sample_words);
    const LookupFault fault = lookup_unit(i, o, cold, logger, registers, job);
    const Word whole = in.one();        // samples before the one with the fault
    for (const Word word : in.many<Word>(size_t(whole) * job.sample_words)) expect("hotline", number, o.read(), word);
    for (const Word word : in.many<Word>(whole)) expect("hotline cold", number, cold.read(), word);
    for (const Word found : {Word(fault.any), fault.sample, fault.position, fault.value})
        expect("hotline fault", number, found, in.one());
    if (!in.one()) return;
    for (const auto &bank : logger.way)
        for (const auto &set : bank)
            for (const Word way : set) expect("hotline image", number, way, in.one());
    for (const Word count : logger.count) expect("hotline counts", number, count, in.one());
}

#endif

}  // namespace

#if HOTRAIL_HAS_EMB
extern "C" void hotrail_host_step() { host.step(); }
#endif

int main(int count, char **arguments) {
    const std::string folder = count > 1 ? arguments[1] : "vectors";
#if HOTRAIL_HAS_EMB
    play(folder, "fp32", test_fp32);
    play(folder, "pooling", test_pooling);
    play(folder, "tt", test_tt);
    test_emb(folder + "/emb.bin", count > 2 ? std::atoi(arguments[2]) : 1);
#endif
#if HOTRAIL_HAS_MLP
    play(folder, "mlp", test_mlp);
#endif
#if HOTRAIL_HAS_HOTLINE
    play(folder, "hotline", test_hotline);
#endif
    std::printf(differing ? "FAILED: %d words differ\n" : "all equal\n", differing);
    return differing != 0;
}
