// Timing of one rank of DDR4 behind a first-ready, first-come controller.
//
// Counts in clocks of the memory (tCK). A request is one burst of eight, 64 bytes on a 64-bit bus. The
// controller issues at most one command a clock: the oldest column access whose row is open and whose time
// has come, else the oldest activation, else the oldest precharge that no waiting access objects to.
#pragma once

#include <cstdint>
#include <vector>

struct DdrTiming {
    int64_t banks = 4, groups = 2;
    int64_t cl = 17, cwl = 12, trcd = 17, trp = 17, tras = 39, tccd_s = 4, tccd_l = 6, trrd_s = 7, trrd_l = 8;
    int64_t tfaw = 36, twr = 18, twtr_s = 3, twtr_l = 9, trtp = 9, trefi = 9360, trfc = 420, bl2 = 4;
    int64_t read_queue = 32, write_queue = 32, write_high = 24, write_low = 8, age_limit = 2000, close_page = 1;
    int64_t mhz = 1200, kernel_mhz = 300;
};

// Where a run of line address bits goes: `width` bits from `from` upwards.
struct DdrField {
    int kind, from, width, to;  // kind 0 row, 1 bank, 2 group, 3 column
};

struct DdrRequest {
    uint32_t row;
    int bank, group;  // bank counts over all groups
    int port;
    uint64_t id;  // the port's own number of the line
    int64_t arrived;
    bool opened = false, closed = false;  // an activation, a precharge was made for it
};

// A command as the memory sees it, for checks: kind 'A' activate, 'P' precharge, 'R', 'W', 'F' refresh.
struct DdrCommand {
    int64_t clock;
    int32_t kind, group, bank, row;
};

struct DdrCounters {
    uint64_t hits = 0, misses = 0, conflicts = 0, activates = 0, refreshes = 0, reads = 0, writes = 0;
};

class Ddr {
  public:
    DdrTiming t;
    std::vector<DdrField> map;
    DdrCounters counters;
    std::vector<DdrCommand>* trace = nullptr;

    void reset() {
        bank.assign(t.banks * t.groups, Bank());
        group.assign(t.groups, Group());
        reads.clear();
        writes.clear();
        for (int64_t& a : acts) a = FAR_PAST;
        act_at = 0;
        now = last_read = last_write = last_act = FAR_PAST;
        now = 0;
        refresh_at = t.trefi;
        wake = 0;
        draining = false;
    }
    // Forgets what is queued; the rows stay as they are.
    void clear_requests() {
        reads.clear();
        writes.clear();
        draining = false;
    }
    bool room(bool write) const {
        return write ? int64_t(writes.size()) < t.write_queue : int64_t(reads.size()) < t.read_queue;
    }
    bool idle() const { return reads.empty() && writes.empty(); }
    void put(uint64_t line, int port, uint64_t id, bool write) {
        DdrRequest r{0, 0, 0, port, id, now};
        int inner = 0;
        for (const DdrField& f : map) {
            uint32_t part = uint32_t(line >> f.from & ((1ull << f.width) - 1)) << f.to;
            if (f.kind == 0) r.row |= part;
            if (f.kind == 1) inner |= part;
            if (f.kind == 2) r.group |= part;
        }
        r.bank = r.group * int(t.banks) + inner;
        (write ? writes : reads).push_back(r);
        wake = now;
    }
    // Up to the end of kernel cycle `cycle`; read(port, id, clock) and wrote(port, id) tell of column accesses,
    // `clock` being the one in which the last data of the burst arrive.
    template <class Read, class Wrote>
    void advance(uint64_t cycle, Read read, Wrote wrote) {
        int64_t end = int64_t((cycle + 1) * uint64_t(t.mhz) / uint64_t(t.kernel_mhz));
        while (now < end) {
            int64_t next = refresh_at < wake ? refresh_at : wake;
            if (now < next) {
                now = next < end ? next : end;
                continue;
            }
            if (now >= refresh_at)
                refresh();
            else
                command(read, wrote);
            now++;
        }
    }
    // The first kernel cycle that begins when clock `clock` has passed.
    uint64_t cycle_of(int64_t clock) const {
        return (uint64_t(clock) * uint64_t(t.kernel_mhz) + uint64_t(t.mhz) - 1) / uint64_t(t.mhz);
    }

  private:
    static constexpr int64_t FAR_PAST = -1000000, NEVER = INT64_MAX;
    struct Bank {
        int64_t row = -1;
        int64_t activate = 0, column = 0, precharge = 0;  // first clock in which each is allowed
        int hits = 0, read_hits = 0;                      // of the queue under service, of both
    };
    struct Group {
        int64_t act = FAR_PAST, column = FAR_PAST, write = FAR_PAST;
    };
    std::vector<Bank> bank;
    std::vector<Group> group;
    std::vector<DdrRequest> reads, writes;
    int64_t acts[4];
    int act_at = 0;
    int64_t now = 0, last_read = 0, last_write = 0, last_act = 0, refresh_at = 0, wake = 0;
    bool draining = false;

    void tell(int64_t clock, char kind, int64_t at = 0, int64_t row = 0) {
        if (trace) trace->push_back({clock, kind, int32_t(at / t.banks), int32_t(at), int32_t(row)});
    }
    static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

    // All banks are closed, then rest for tRFC. Requests wait where they are.
    void refresh() {
        int64_t start = now;
        for (Bank& b : bank)
            start = later(start, b.row >= 0 ? later(b.precharge, now) + t.trp : b.activate);
        for (Bank& b : bank) {
            if (b.row >= 0) tell(later(b.precharge, now), 'P', &b - bank.data());
            b.row = -1;
            b.activate = start + t.trfc;
        }
        tell(start, 'F');
        counters.refreshes++;
        refresh_at += t.trefi;
        wake = start + t.trfc;
    }

    int64_t column_time(const DdrRequest& r, bool write) const {
        const Group& g = group[r.group];
        int64_t at = later(bank[r.bank].column, later(last_read, last_write) + t.tccd_s);
        at = later(at, g.column + t.tccd_l);
        if (write)
            at = later(at, last_read + t.cl + t.bl2 + 2 - t.cwl);
        else
            at = later(at, later(last_write + t.twtr_s, g.write + t.twtr_l) + t.cwl + t.bl2);
        return at;
    }
    int64_t activate_time(const DdrRequest& r) const {
        int64_t at = later(bank[r.bank].activate, later(last_act + t.trrd_s, group[r.group].act + t.trrd_l));
        return later(at, acts[act_at] + t.tfaw);
    }

    template <class Read, class Wrote>
    void command(Read read, Wrote wrote) {
        if (draining ? int64_t(writes.size()) <= t.write_low && !reads.empty() : false) draining = false;
        if (!draining && (int64_t(writes.size()) >= t.write_high || (reads.empty() && !writes.empty()))) draining = true;
        if (draining && writes.empty()) draining = false;
        std::vector<DdrRequest>& queue = draining ? writes : reads;
        wake = NEVER;
        if (queue.empty()) return;
        for (Bank& b : bank) b.hits = b.read_hits = 0;
        // One pass finds the oldest ready column access and counts who still needs which open row.
        int64_t soonest = NEVER;
        size_t found = queue.size();
        for (size_t i = 0; i < queue.size(); i++) {
            const DdrRequest& r = queue[i];
            Bank& b = bank[r.bank];
            if (b.row != int64_t(r.row)) continue;
            b.hits++;
            if (found < queue.size()) continue;
            int64_t at = column_time(r, draining);
            if (at <= now)
                found = i;
            else if (at < soonest)
                soonest = at;
        }
        if (found < queue.size()) {
            column(queue, found, read, wrote);
            wake = now + 1;
            return;
        }
        uint64_t tried = 0;  // banks for which an older request has already spoken
        size_t close = queue.size();
        for (size_t i = 0; i < queue.size(); i++) {
            DdrRequest& r = queue[i];
            Bank& b = bank[r.bank];
            if (b.row == int64_t(r.row) || tried >> r.bank & 1) continue;
            if (b.row >= 0) {
                // A row that others still want stays open, unless this one has waited for too long.
                if (b.hits && now - r.arrived < t.age_limit) continue;
                tried |= 1ull << r.bank;
                if (b.precharge <= now) {
                    if (close == queue.size()) close = i;
                } else if (b.precharge < soonest)
                    soonest = b.precharge;
                continue;
            }
            tried |= 1ull << r.bank;
            int64_t at = activate_time(r);
            if (at <= now) {
                b.row = r.row;
                b.column = now + t.trcd;
                b.precharge = now + t.tras;
                last_act = group[r.group].act = acts[act_at] = now;
                act_at = (act_at + 1) & 3;
                r.opened = true;
                counters.activates++;
                tell(now, 'A', r.bank, r.row);
                wake = now + 1;
                return;
            }
            if (at < soonest) soonest = at;
        }
        if (close < queue.size()) {
            Bank& b = bank[queue[close].bank];
            b.row = -1;
            b.activate = now + t.trp;
            tell(now, 'P', queue[close].bank);
            queue[close].closed = true;
            wake = now + 1;
            return;
        }
        wake = soonest;
    }

    template <class Read, class Wrote>
    void column(std::vector<DdrRequest>& queue, size_t which, Read read, Wrote wrote) {
        DdrRequest r = queue[which];
        queue.erase(queue.begin() + which);
        Bank& b = bank[r.bank];
        Group& g = group[r.group];
        (r.closed ? counters.conflicts : r.opened ? counters.misses : counters.hits)++;
        g.column = now;
        tell(now, draining ? 'W' : 'R', r.bank, r.row);
        if (draining) {
            last_write = g.write = now;
            b.precharge = later(b.precharge, now + t.cwl + t.bl2 + t.twr);
            counters.writes++;
            wrote(r.port, r.id);
        } else {
            last_read = now;
            b.precharge = later(b.precharge, now + t.trtp);
            counters.reads++;
            read(r.port, r.id, now + t.cl + t.bl2);
        }
        if (t.close_page && b.hits == 1 && !wanted(draining ? reads : writes, r)) {
            // Column access with auto-precharge: nobody waits for this row.
            b.row = -1;
            b.activate = b.precharge + t.trp;
            tell(b.precharge, 'P', r.bank);
        }
    }
    static bool wanted(const std::vector<DdrRequest>& queue, const DdrRequest& r) {
        for (const DdrRequest& other : queue)
            if (other.bank == r.bank && other.row == r.row) return true;
        return false;
    }
};
