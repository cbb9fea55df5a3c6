// AMD's soft DDR4 controller by its published rules (PG150, PG353).
//
// A controller clock is four clocks of the memory. The AXI side takes the bursts of reads and of writes in their order,
// a line a clock: of one kind until none waits, or at the end of a burst when `turn_lines` lines have gone and the other
// kind waits, or inside a burst whose next line has not come for PAUSE clocks. It hands each line to one of four group
// machines; a line whose machine is full holds back all behind it. A machine keeps the order of its lines: its first line
// without an open page has it opened, and column commands go in order. In a controller clock at most one column command,
// one activation and one precharge leave, from machines in turn, reads before writes. Pages stay open. What is read leaves
// in the order of the bursts.
#pragma once

#include <algorithm>

#include "dram.h"
#include "ring.h"

class GroupMachines {
  public:
    void reset(const Dram& d) {
        // A machine serves a group; where there are two groups only, the banks with one lowest address bit of one.
        const int halves = d.t.groups < MACHINES ? int(MACHINES / d.t.groups) : 1, banks = int(d.t.banks);
        machine_of.resize(d.bank.size());
        for (int bank = 0; bank < int(d.bank.size()); bank++)
            machine_of[size_t(bank)] = (bank / banks * halves + bank % banks % halves) % MACHINES;
        clear();
        turn_column = turn_row = turn_close = 0;
    }
    void clear() {
        for (int i = 0; i < MACHINES; i++) {
            machines[i] = Machine();
            column_at[i] = activate_at[i] = close_at[i] = Dram::NEVER;
        }
        found = writing = 0;
        for (auto& e : entry) e.clear();
        answers.clear();
        answered = 0;
        kind = 0;
        within[0] = within[1] = false;
        gone = paused = waiting = 0;
        last_answer = wake = 0;
    }
    bool room(const Dram&, bool write) const { return entry[write].size() < ENTRY; }
    bool idle() const { return !waiting && entry[0].empty() && entry[1].empty(); }
    void put(const Dram&, const DdrRequest& r) { entry[r.write].push(r); }

    template <class Read, class Wrote>
    void advance(Dram& d, int64_t end, Read read, Wrote wrote) {
        const int64_t step = d.t.controller_clocks;
        while (d.now < end) {
            if (d.now >= d.refresh_at) {
                d.refresh();
                for (int i = 0; i < MACHINES; i++) {
                    machines[i].open = 0;
                    column_at[i] = Dram::NEVER;
                    look(d, i);
                }
            }
            if (idle()) {
                const int64_t clocks = Dram::later(std::min(d.refresh_at, end) - d.now, 1);
                d.now += (clocks + step - 1) / step * step;
                continue;
            }
            enter(d);
            if (d.now >= wake) {
                columns(d, read, wrote);
                rows(d);
                sleep(d);
            }
            d.now += step;
        }
    }

  private:
    // Where in a controller clock the commands go: a column command in the first of its four clocks, or in the third
    // where both are used; activation in the second; precharge in the fourth.
    static constexpr int64_t ACTIVATE_SLOT = 1, PRECHARGE_SLOT = 3, COLUMN_SLOT_STEP = 2;
    static constexpr int MACHINES = 4;
    static constexpr size_t ENTRY = 4;
    static constexpr int64_t PAUSE = 16;   // clocks without a line after which the other kind has its turn
    struct Machine {
        Ring<DdrRequest> lines;
        uint32_t open = 0;     // lines at the front whose pages were found open or have been opened
        int64_t modify = -1;   // when the first line, a partial write, has been read and may be written
    };
    Machine machines[MACHINES];
    // By machine, the clock before which no column command of its first line goes, no activation and no precharge for its
    // first line without an open page; NEVER where none is needed.
    int64_t column_at[MACHINES], activate_at[MACHINES], close_at[MACHINES];
    uint32_t found = 0;                 // bits of machines: the page of that line was found open
    uint32_t writing = 0;               // the first line asks for a write command now; a partial line is read before
    Ring<DdrRequest> entry[2];  // reads, writes
    struct Answer {
        int port;
        uint64_t id;
        int64_t clock;  // in which its last data arrive; before its column command -1
    };
    Ring<Answer> answers;  // in the order of the reads' entry
    uint64_t answered = 0;
    std::vector<int> machine_of;        // by bank
    int kind = 0;                       // what enters now: reads, writes
    bool within[2] = {false, false};    // a burst of them has entered in part
    int64_t gone = 0, paused = 0;       // lines of them in this turn; clocks in which none came
    int64_t waiting = 0;                // lines in the machines
    int64_t last_answer = 0, wake = 0;  // wake: nothing goes before, unless a line comes that is its machine's first
    int turn_column = 0, turn_row = 0, turn_close = 0;

    // What a machine needs for its first line without an open page, after its lines or a page of its banks have changed.
    // A precharge waits for the lines before that await their column commands in the bank.
    void look(const Dram& d, int i) {
        const Machine& m = machines[i];
        wake = 0;
        found &= ~(1u << i);
        activate_at[i] = close_at[i] = Dram::NEVER;
        if (m.open == m.lines.size()) return;
        const DdrRequest& r = m.lines[m.open];
        const Dram::Bank& b = d.bank[size_t(r.bank)];
        if (d.open(r))
            found |= 1u << i;
        else if (b.row < 0)
            activate_at[i] = d.activate_time(r);
        else if (!needed(m, r.bank))
            close_at[i] = b.precharge;
    }
    // The same for the column command of its first line.
    void front(const Dram& d, int i) {
        const Machine& m = machines[i];
        const DdrRequest& r = m.lines[0];
        const bool write = r.write && (!r.partial || m.modify >= 0);
        writing = (writing & ~(1u << i)) | uint32_t(write) << i;
        column_at[i] = time_of(d, i);
    }
    int64_t time_of(const Dram& d, int i) const {
        const bool write = writing >> i & 1;
        const int64_t at = d.column_time(machines[i].lines[0], write);
        return write ? Dram::later(at, machines[i].modify) : at;
    }
    // Until something may go. What holds a command back is only ever put off: when its clock has come, it is found out
    // again.
    void sleep(const Dram& d) {
        const int64_t last_slot = COLUMN_SLOT_STEP * (d.t.column_slots - 1);
        wake = found ? 0 : Dram::NEVER;
        for (int i = 0; i < MACHINES; i++)
            wake = std::min({wake, column_at[i] - last_slot, activate_at[i] - ACTIVATE_SLOT, close_at[i] - PRECHARGE_SLOT});
    }
    // Bits of the machines whose clock has come.
    static uint32_t due(const int64_t* at, int64_t clock) {
        uint32_t bits = 0;
        for (int i = 0; i < MACHINES; i++) bits |= uint32_t(at[i] <= clock) << i;
        return bits;
    }
    // The first of these machines from `turn` on.
    static int first(uint32_t bits, int turn) {
        return (turn + __builtin_ctz((bits | bits << MACHINES) >> turn)) % MACHINES;
    }

    // The AXI side: whose turn it is, and its next line.
    void enter(Dram& d) {
        bool more = within[kind] || !entry[kind].empty();
        bool holds = more && (within[kind] || gone < d.t.turn_lines) && paused < PAUSE;
        if (!holds && (within[!kind] || !entry[!kind].empty())) {
            kind = !kind;
            gone = paused = 0;
        }
        if (entry[kind].empty()) {
            paused++;
            return;
        }
        DdrRequest& r = entry[kind].front();
        const int i = machine_of[size_t(r.bank)];
        Machine& m = machines[i];
        if (int64_t(m.lines.size()) >= d.t.machine_depth) return;
        within[kind] = !r.last;
        gone++;
        paused = 0;
        if (!kind) {
            answers.push({r.port, r.id, -1});
            r.id = answered + answers.size() - 1;
        }
        m.lines.push(r);
        entry[kind].drop();
        waiting++;
        if (m.open + 1 == m.lines.size()) look(d, i);
    }

    // One column command: of a read if one is ready, of a write otherwise.
    template <class Read, class Wrote>
    void columns(Dram& d, Read read, Wrote wrote) {
        // A line whose page is open joins those that await their column command, one a clock in each machine.
        for (uint32_t bits = found; bits; bits &= bits - 1) {
            const int i = __builtin_ctz(bits);
            if (!machines[i].open++) front(d, i);
            look(d, i);
        }
        for (int64_t slot = 0; slot < d.t.column_slots; slot++) {
            const int64_t clock = d.now + COLUMN_SLOT_STEP * slot;
            for (uint32_t bits = due(column_at, clock); bits;) {
                const int i = first(bits & ~writing ? bits & ~writing : bits, turn_column);
                column_at[i] = time_of(d, i);
                bits &= ~(1u << i);
                if (column_at[i] > clock) continue;
                column(d, i, clock, wrote);
                turn_column = (i + 1) % MACHINES;
                answer(d, read);
                return;
            }
        }
    }
    template <class Wrote>
    void column(Dram& d, int i, int64_t clock, Wrote wrote) {
        Machine& m = machines[i];
        const bool write = writing >> i & 1;
        const DdrRequest& r = m.lines[0];
        d.column(r, write, clock);
        if (!write && r.write) {
            m.modify = clock + d.t.rmw;
            front(d, i);
            return;
        }
        d.count(r);
        if (write)
            wrote(r.port, r.id);
        else
            answers[uint32_t(r.id - answered)].clock = clock + d.t.cl + d.t.bl2;
        m.modify = -1;
        m.lines.drop();
        m.open--;
        waiting--;
        if (m.open)
            front(d, i);
        else
            column_at[i] = Dram::NEVER;
        look(d, i);
    }

    // One activation and one precharge, each for a machine's first line without an open page.
    void rows(Dram& d) {
        int64_t clock = d.now + ACTIVATE_SLOT;
        for (uint32_t bits = due(activate_at, clock); bits;) {
            const int i = first(bits, turn_row);
            DdrRequest& r = machines[i].lines[machines[i].open];
            activate_at[i] = d.activate_time(r);
            bits &= ~(1u << i);
            if (activate_at[i] > clock) continue;
            d.activate(r, clock);
            look(d, i);
            turn_row = (i + 1) % MACHINES;
            break;
        }
        clock = d.now + PRECHARGE_SLOT;
        if (const uint32_t bits = due(close_at, clock)) {
            const int i = first(bits, turn_close);
            DdrRequest& r = machines[i].lines[machines[i].open];
            d.precharge(r.bank, clock);
            r.closed = true;
            look(d, i);
            turn_close = (i + 1) % MACHINES;
        }
    }
    // Whether lines before the first without an open page still await their column command in a bank.
    static bool needed(const Machine& m, int bank) {
        for (uint32_t k = 0; k < m.open; k++)
            if (m.lines[k].bank == bank) return true;
        return false;
    }

    // What has been read leaves in order, a line a controller clock.
    template <class Read>
    void answer(Dram& d, Read read) {
        while (!answers.empty() && answers.front().clock >= 0) {
            const Answer& a = answers.front();
            last_answer = Dram::later(a.clock, last_answer + d.t.controller_clocks);
            read(a.port, a.id, last_answer);
            answers.drop();
            answered++;
        }
    }
};
