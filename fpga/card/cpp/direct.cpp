// The models alone, with a reader that always keeps up: what a core could reach at best.
#include <cstdint>

#include "link.h"
#include "port.h"
#include "ssd.h"

namespace {
struct Direct {
    Ddr ddr;
    LineQueue lines;
    int64_t front, back;
    uint64_t cycle = 0;
};
}  // namespace

extern "C" {
// Reads `count` rows of `row_lines` lines at the given line addresses, each a burst, up to `bursts` of them and `ahead`
// lines under way; takes a line a cycle at most; returns the cycles from the first request to the last line, 0 where
// that takes more than 1,000 a line. timing:
// the fields of DdrTiming in the order of fpga.card.memory.TIMING; fields: four numbers each; counters: seven; trace:
// room for `trace_room` commands, of which `traced` were given, or null.
__attribute__((visibility("default"))) uint64_t direct_rows(const int64_t* timing, const int32_t* fields, int field_count,
                                                            int64_t front, int64_t back, const uint64_t* rows,
                                                            uint64_t count, uint64_t row_lines, uint64_t bursts,
                                                            uint64_t ahead,
                                                            const uint8_t* writes, uint64_t* counters,
                                                            DdrCommand* trace, uint64_t trace_room, uint64_t* traced) {
    auto d = new Direct;
    DdrTiming& t = d->ddr.t;
    for (int64_t* v : {&t.banks, &t.groups, &t.cl, &t.cwl, &t.trcd, &t.trp, &t.tras, &t.tccd_s, &t.tccd_l, &t.trrd_s,
                       &t.trrd_l, &t.tfaw, &t.twr, &t.twtr_s, &t.twtr_l, &t.trtp, &t.trefi, &t.trfc, &t.bl2,
                       &t.mhz, &t.kernel_mhz, &t.policy, &t.read_queue, &t.write_queue, &t.write_high, &t.write_low,
                       &t.age_limit, &t.close_page, &t.controller_clocks, &t.machine_depth, &t.column_slots,
                       &t.turn_lines, &t.rmw, &t.bursts, &t.row_bus, &t.act_clocks, &t.bank_refresh, &t.trrefd,
                       &t.stacks, &t.tccd_r})
        *v = *timing++;
    for (int i = 0; i < field_count; i++)
        d->ddr.dram.map.push_back({fields[4 * i], fields[4 * i + 1], fields[4 * i + 2], fields[4 * i + 3]});
    d->ddr.reset();
    std::vector<DdrCommand> commands;
    if (trace) d->ddr.dram.trace = &commands;
    d->lines.limit = ahead < LineQueue::SIZE ? ahead : LineQueue::SIZE;
    LineQueue& q = d->lines;
    uint64_t asked = 0, got = 0, total = count * row_lines;
    const uint64_t limit = 1000 * (total + 1000);  // a controller that gets stuck
    while ((got < total || !d->ddr.idle()) && d->cycle < limit) {
        d->cycle++;
        // A line asked for, or written, a cycle.
        uint64_t row = asked / row_lines;
        bool last = asked % row_lines == row_lines - 1;
        if (asked < total && (asked % row_lines || row - got / row_lines < bursts)) {
            if (!writes || !writes[row]) {
                if (q.room()) q.push(rows[row] + asked++ % row_lines, LINE, last, d->cycle + front);
            } else if (d->ddr.room(true)) {
                d->ddr.put(rows[row] + asked++ % row_lines, 0, 0, true, last, writes[row] > 1);
                got++;
            }
        }
        for (int left = d->ddr.lines_a_cycle(); left; left--) {
            if (q.due > d->cycle || !d->ddr.room(false)) break;
            d->ddr.put(q.at(q.sent).address, 0, q.sent, false, q.at(q.sent).last, false);
            q.send();
        }
        d->ddr.advance(
            d->cycle,
            [&](int, uint64_t id, int64_t clock) {
                q.at(id).done = true;
                q.at(id).ready = d->ddr.cycle_of(clock) + back;
            },
            [](int, uint64_t) {});
        if (!q.empty() && q.at(q.head).done && q.at(q.head).ready <= d->cycle) q.head++, got++;
    }
    const DdrCounters& n = d->ddr.dram.counters;
    for (uint64_t v : {n.hits, n.misses, n.conflicts, n.activates, n.refreshes, n.reads, n.writes}) *counters++ = v;
    if (trace) {
        *traced = commands.size();
        for (uint64_t i = 0; i < trace_room && i < commands.size(); i++) trace[i] = commands[i];
    }
    uint64_t cycles = d->cycle < limit ? d->cycle : 0;
    delete d;
    return cycles;
}

// Brings `count` pages of the drive through a ring whose reader releases each page at once; returns the cycles until
// the last one is announced, 0 when that takes more than `limit`. timing: the fields of SsdTiming and Lane in the order of
// fpga.card.memory.DRIVE_TIMING; transfers: page and position of each, positions in beats of 64 bytes.
__attribute__((visibility("default"))) uint64_t direct_pages(const int64_t* timing, const uint8_t* data, uint64_t page_bytes,
                                                             const uint64_t* transfers, uint64_t count,
                                                             uint64_t ring_bytes, uint64_t limit) {
    Store store(0, ring_bytes + 2 * Store::PAGE);
    if (!store.sound()) return 0;
    auto m = new Memory;
    m->store = &store;
    Ssd ssd;
    Lane lane;
    SsdTiming& t = ssd.t;
    for (int64_t* v : {&t.tr, &t.channels, &t.dies, &t.flash_page, &t.bus, &t.command, &t.setup, &lane.page, &t.depth,
                       &t.submit, &t.complete, &t.poll, &t.doorbell})
        *v = *timing++;
    ssd.attach(m, &lane);
    const uint64_t progress = ring_bytes, doorbell = ring_bytes + Store::PAGE;
    ssd.stream(data, 0, page_bytes, transfers, count, 0, ring_bytes, progress, doorbell, LINE);
    ssd.start();
    const uint32_t end = uint32_t(transfers[2 * count - 1] + page_bytes / LINE) & ((1u << 30) - 1);
    while (m->cycle < limit && store.word(doorbell) != end) {
        m->cycle++;
        ssd.tick();
        ssd.to_write.clear();
        uint32_t filled = store.word(doorbell);
        store.write(progress, &filled, 4);
    }
    uint64_t cycles = store.word(doorbell) == end ? m->cycle : 0;
    delete m;
    return cycles;
}
}
