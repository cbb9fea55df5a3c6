// One rank of DDR4: what each command does to it, when the standard allows each, and who sees it.
//
// Counts in clocks of the memory (tCK). A request is one burst of eight, 64 bytes on a 64-bit bus. Which command goes
// when is a controller's choice: fr_fcfs.h and group_machines.h are two of them.
#pragma once

#include <cstdint>
#include <vector>

struct DdrTiming {
    int64_t banks = 4, groups = 2;
    int64_t cl = 17, cwl = 12, trcd = 17, trp = 17, tras = 39, tccd_s = 4, tccd_l = 6, trrd_s = 7, trrd_l = 8;
    int64_t tfaw = 36, twr = 18, twtr_s = 3, twtr_l = 9, trtp = 9, trefi = 9360, trfc = 420, bl2 = 4;
    int64_t mhz = 1200, kernel_mhz = 300;
    int64_t policy = 0;  // 0 first-ready, first-come; 1 group machines
    int64_t read_queue = 32, write_queue = 32, write_high = 24, write_low = 8, age_limit = 2000, close_page = 1;
    int64_t controller_clocks = 4, machine_depth = 8, column_slots = 1, turn_lines = 256, rmw = 100;
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
    bool write, last, partial;  // last: of its burst; partial: a write of some of the line's bytes
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

struct Dram {
    static constexpr int64_t FAR_PAST = -1000000, NEVER = INT64_MAX;
    struct Bank {
        int64_t row = -1;
        int64_t activate = 0, column = 0, precharge = 0;  // first clock in which each is allowed
    };
    struct Group {
        int64_t act = FAR_PAST, column = FAR_PAST, write = FAR_PAST;
    };
    DdrTiming t;
    std::vector<DdrField> map;
    DdrCounters counters;
    std::vector<DdrCommand>* trace = nullptr;
    std::vector<Bank> bank;
    std::vector<Group> group;
    int64_t now = 0, refresh_at = 0;

    void reset() {
        bank.assign(t.banks * t.groups, Bank());
        group.assign(t.groups, Group());
        for (int64_t& a : acts) a = FAR_PAST;
        act_at = 0;
        last_read = last_write = last_act = FAR_PAST;
        now = 0;
        refresh_at = t.trefi;
    }
    DdrRequest request(uint64_t line, int port, uint64_t id, bool write, bool last, bool partial) const {
        DdrRequest r{0, 0, 0, port, id, now, write, last, partial};
        int inner = 0;
        for (const DdrField& f : map) {
            uint32_t part = uint32_t(line >> f.from & ((1ull << f.width) - 1)) << f.to;
            if (f.kind == 0) r.row |= part;
            if (f.kind == 1) inner |= part;
            if (f.kind == 2) r.group |= part;
        }
        r.bank = r.group * int(t.banks) + inner;
        return r;
    }
    bool open(const DdrRequest& r) const { return bank[r.bank].row == int64_t(r.row); }

    // First clocks in which the standard allows a command for a request.
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

    void activate(DdrRequest& r, int64_t clock) {
        Bank& b = bank[r.bank];
        b.row = r.row;
        b.column = clock + t.trcd;
        b.precharge = clock + t.tras;
        last_act = group[r.group].act = acts[act_at] = clock;
        act_at = (act_at + 1) & 3;
        r.opened = true;
        counters.activates++;
        tell(clock, 'A', r.bank, r.row);
    }
    void precharge(int which, int64_t clock) {
        Bank& b = bank[which];
        b.row = -1;
        b.activate = clock + t.trp;
        tell(clock, 'P', which);
    }
    void column(const DdrRequest& r, bool write, int64_t clock) {
        Bank& b = bank[r.bank];
        Group& g = group[r.group];
        g.column = clock;
        tell(clock, write ? 'W' : 'R', r.bank, r.row);
        if (write) {
            last_write = g.write = clock;
            b.precharge = later(b.precharge, clock + t.cwl + t.bl2 + t.twr);
            counters.writes++;
        } else {
            last_read = clock;
            b.precharge = later(b.precharge, clock + t.trtp);
            counters.reads++;
        }
    }
    void count(const DdrRequest& r) { (r.closed ? counters.conflicts : r.opened ? counters.misses : counters.hits)++; }

    // All banks are closed, then rest for tRFC; returns the clock in which they may be opened again.
    int64_t refresh() {
        int64_t start = now;
        for (const Bank& b : bank) start = later(start, b.row >= 0 ? later(b.precharge, now) + t.trp : b.activate);
        for (Bank& b : bank) {
            if (b.row >= 0) tell(start - t.trp, 'P', &b - bank.data());
            b.row = -1;
            b.activate = start + t.trfc;
        }
        tell(start, 'F');
        counters.refreshes++;
        refresh_at += t.trefi;
        return start + t.trfc;
    }

    static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

  private:
    int64_t acts[4];
    int act_at = 0;
    int64_t last_read = 0, last_write = 0, last_act = 0;

    void tell(int64_t clock, char kind, int64_t at = 0, int64_t row = 0) {
        if (trace) trace->push_back({clock, kind, int32_t(at / t.banks), int32_t(at), int32_t(row)});
    }
};
