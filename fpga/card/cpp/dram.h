// One rank of DDR4 or one pseudo-channel of HBM2: what each command does to it, when the standard allows each, and who
// sees it.
//
// Counts in clocks of the memory (tCK). A request is one burst: of DDR4 eight beats of 64 bits, a line of 64 bytes; of
// HBM2 four, half a line. Which command goes when is a controller's choice: fr_fcfs.h and group_machines.h are two.
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
    int64_t bursts = 1;     // of a line of 64 bytes
    // HBM2 has a bus for row commands beside that for column commands. row_bus: channels that share it and ask for it as
    // often as this one, 0: one bus for all commands; act_clocks: that an activation takes it, a precharge takes one.
    int64_t row_bus = 0, act_clocks = 1;
    // Refresh of one bank after the other, trefi apart; trrefd: from one to an activation in another bank.
    int64_t bank_refresh = 0, trrefd = 0;
    int64_t stacks = 1, tccd_r = 0;  // stack IDs, each of as many groups; column commands of two of them are tccd_r apart
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
        last_read = last_write = last_act = last_refresh = FAR_PAST;
        now = 0;
        next_bank = last_stack = 0;
        refresh_at = t.trefi;
    }
    // burst: its number from the memory's base on.
    DdrRequest request(uint64_t burst, int port, uint64_t id, bool write, bool last, bool partial) const {
        DdrRequest r{0, 0, 0, port, id, now, write, last, partial};
        int inner = 0;
        for (const DdrField& f : map) {
            uint32_t part = uint32_t(burst >> f.from & ((1ull << f.width) - 1)) << f.to;
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
        const bool apart = t.stacks > 1 && stack(r.group) != last_stack;
        int64_t at = later(bank[r.bank].column, later(last_read, last_write) + (apart ? t.tccd_r : t.tccd_s));
        at = later(at, g.column + t.tccd_l);
        if (write)
            at = later(at, last_read + t.cl + t.bl2 + 2 - t.cwl);
        else
            at = later(at, later(last_write + t.twtr_s, g.write + t.twtr_l) + t.cwl + t.bl2);
        return at;
    }
    int64_t activate_time(const DdrRequest& r) const {
        int64_t at = later(bank[r.bank].activate, later(last_act + t.trrd_s, group[r.group].act + t.trrd_l));
        at = later(at, acts[act_at] + t.tfaw);
        const bool behind = t.bank_refresh && later(at, now) > last_refresh - t.trrd_s;
        return behind ? later(at, last_refresh + t.trrefd) : at;
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
        last_stack = stack(r.group);
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

    // The next bank is closed and rests for tRFC; the others go on.
    void refresh_bank() {
        Bank& b = bank[size_t(next_bank)];
        int64_t start = later(last_act + t.trrd_s, b.row >= 0 ? later(b.precharge, now) + t.trp : later(b.activate, now));
        if (b.row >= 0) tell(start - t.trp, 'P', next_bank);
        b.row = -1;
        b.activate = start + t.trfc;
        last_refresh = start;
        tell(start, 'F', next_bank);
        counters.refreshes++;
        next_bank = (next_bank + 1) % int64_t(bank.size());
        refresh_at += t.trefi;
    }

    static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

  private:
    int64_t acts[4];
    int act_at = 0;
    int64_t last_read = 0, last_write = 0, last_act = 0, last_refresh = 0;
    int64_t next_bank = 0, last_stack = 0;

    int64_t stack(int of_group) const { return of_group * t.stacks / t.groups; }

    void tell(int64_t clock, char kind, int64_t at = 0, int64_t row = 0) {
        if (trace) trace->push_back({clock, kind, int32_t(at / t.banks), int32_t(at), int32_t(row)});
    }
};
