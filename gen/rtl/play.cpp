// Plays beats into a unit's streams, phase after phase, and records what leaves it: gen/rtl/play.py.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <vector>
#include "Vtop.h"
#include "verilated.h"

struct Pin {
    void* at;
    size_t bytes;
};

struct Stream {
    Pin payload;
    CData* valid;   // null where it is constant, as ready
    CData* ready;
};

#include "bind.h"   // clock, reset, inputs, outputs, and what is no stream: plain, shown

using Bytes = std::vector<uint8_t>;

static FILE* opened(const char* path, const char* mode) {
    FILE* file = std::fopen(path, mode);
    if (!file) throw std::runtime_error(std::string(path) + ": " + std::strerror(errno));
    return file;
}

struct Asked {
    FILE* file;

    uint64_t number() {
        uint64_t value = 0;
        bytes(&value, sizeof value);
        return value;
    }
    void bytes(void* to, size_t count) {
        if (std::fread(to, 1, count, file) != count) throw std::runtime_error("what is asked ends too early");
    }
    void pin(const Pin& pin) { bytes(pin.at, pin.bytes); }
};

struct Record {
    Bytes beats;
    std::vector<uint64_t> at;

    void add(const Pin& pin, uint64_t cycle) {
        auto first = static_cast<const uint8_t*>(pin.at);
        beats.insert(beats.end(), first, first + pin.bytes);
        at.push_back(cycle);
    }
};

static void write(FILE* file, const void* data, size_t bytes) {
    const uint64_t count = bytes;
    std::fwrite(&count, sizeof count, 1, file);
    std::fwrite(data, 1, bytes, file);
}

static int play(const char* asked_path, const char* told_path) {
    Asked asked{opened(asked_path, "rb")};
    VerilatedContext context;
    context.randReset(2);
    context.randSeed(static_cast<int>(asked.number()));
    Vtop top{&context};
    const auto ins = inputs(top), outs = outputs(top);
    const auto set = plain(top), ports = shown(top);
    const uint64_t limit = asked.number();
    std::vector<Pin> watched;
    for (uint64_t count = asked.number(); count; --count) watched.push_back(ports[asked.number()]);
    std::vector<std::vector<uint64_t>> taken(ins.size());
    std::vector<Record> told(outs.size());
    Bytes samples;
    std::vector<double> ended;      // of each phase, its last cycle and the processor's seconds
    uint64_t cycle = 0;

    auto edge = [&] {
        clock(top) = 1;
        top.eval();
    };
    for (const auto& pin : set) std::memset(pin.at, 0, pin.bytes);
    for (const auto& in : ins) {
        std::memset(in.payload.at, 0, in.payload.bytes);
        if (in.valid) *in.valid = 0;
    }
    for (const auto& out : outs)
        if (out.ready) *out.ready = 1;
    for (int step = 0; step < 3; ++step) {
        reset(top) = 1;
        clock(top) = 0;
        top.eval();
        edge();
    }
    reset(top) = 0;

    const uint64_t phases = asked.number();
    for (uint64_t phase = 0; phase < phases; ++phase) {
        for (uint64_t count = asked.number(); count; --count) asked.pin(set[asked.number()]);
        std::vector<Bytes> queues(ins.size());
        std::vector<size_t> next(ins.size());
        for (uint64_t count = asked.number(); count; --count) {
            auto& queue = queues[asked.number()];
            queue.resize(asked.number());
            asked.bytes(queue.data(), queue.size());
        }
        std::vector<uint64_t> until(outs.size());
        for (uint64_t count = asked.number(); count; --count) {
            const uint64_t which = asked.number();
            until[which] = asked.number();
        }
        uint64_t rest = asked.number();
        while (true) {
            bool waits = false;
            for (size_t k = 0; k < ins.size(); ++k) waits |= next[k] < queues[k].size();
            for (size_t k = 0; k < outs.size(); ++k) waits |= told[k].at.size() < until[k];
            if (!waits && !rest) break;
            if (!waits) --rest;
            if (cycle == limit) {
                std::fprintf(stderr, "phase %llu has not ended after %llu cycles;", (unsigned long long)phase,
                             (unsigned long long)limit);
                for (size_t k = 0; k < outs.size(); ++k) std::fprintf(stderr, " %zu beats", told[k].at.size());
                std::fprintf(stderr, " have come\n");
                return 1;
            }
            for (size_t k = 0; k < ins.size(); ++k) {
                const bool offered = next[k] < queues[k].size();
                if (offered) std::memcpy(ins[k].payload.at, &queues[k][next[k]], ins[k].payload.bytes);
                if (ins[k].valid) *ins[k].valid = offered;
            }
            clock(top) = 0;
            top.eval();
            ++cycle;
            for (size_t k = 0; k < ins.size(); ++k)
                if (next[k] < queues[k].size() && (!ins[k].ready || *ins[k].ready)) {
                    next[k] += ins[k].payload.bytes;
                    taken[k].push_back(cycle);
                }
            for (size_t k = 0; k < outs.size(); ++k)
                if (!outs[k].valid || *outs[k].valid) told[k].add(outs[k].payload, cycle);
            for (const auto& pin : watched) {
                auto first = static_cast<const uint8_t*>(pin.at);
                samples.insert(samples.end(), first, first + pin.bytes);
            }
            edge();
        }
        ended.push_back(static_cast<double>(cycle));
        ended.push_back(static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
    }
    clock(top) = 0;
    top.eval();
    FILE* out = opened(told_path, "wb");
    for (const auto& each : taken) write(out, each.data(), each.size() * sizeof(uint64_t));
    for (const auto& each : told) {
        write(out, each.beats.data(), each.beats.size());
        write(out, each.at.data(), each.at.size() * sizeof(uint64_t));
    }
    write(out, samples.data(), samples.size());
    write(out, ended.data(), ended.size() * sizeof(double));
    for (const auto& pin : ports) write(out, pin.at, pin.bytes);
    const bool failed = std::ferror(out);
    if (std::fclose(out) || failed) throw std::runtime_error(std::string(told_path) + " could not be written");
    return 0;
}

int main(int count, char** words) {
    try {
        return count == 3 ? play(words[1], words[2]) : 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
