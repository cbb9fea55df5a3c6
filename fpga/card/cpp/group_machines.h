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
        for (Machine& m : machines) m = Machine();
        for (auto& e : entry) e.clear();
        answers.clear();
        answered = 0;
        kind = 0;
        within[0] = within[1] = false;
        gone = paused = waiting = opened = 0;
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
                for (Machine& m : machines) m.open = 0;
                opened = wake = 0;
            }
            if (idle() || (d.now < wake && calm())) {
                const int64_t next = std::min({idle() ? end : wake, d.refresh_at, end});
                const int64_t clocks = (Dram::later(next - d.now, 1) + step - 1) / step;
                if (waiting) paused += clocks;
                d.now += clocks * step;
                continue;
            }
            wake = Dram::NEVER;
            enter(d);
            columns(d, wrote);
            rows(d);
            answer(d, read);
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
        int64_t ready = 0;     // no column command of the first line goes before
        int64_t modify = -1;   // when the first line, a partial write, has been read and may be written
    };
    Machine machines[MACHINES];
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
    int64_t waiting = 0, opened = 0;    // lines in the machines; those of them whose pages are open
    int64_t last_answer = 0, wake = 0;  // wake: nothing goes before, unless a line comes
    int turn_column = 0, turn_row = 0, turn_close = 0;

    // Nothing is at the entry, nor awaited there.
    bool calm() const { return entry[0].empty() && entry[1].empty() && !within[0] && !within[1]; }
    // Something goes at clock `at` of a controller clock, or might.
    void wakes(int64_t at) { wake = std::min(wake, at - PRECHARGE_SLOT); }

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
        Machine& m = machines[machine_of[size_t(r.bank)]];
        if (int64_t(m.lines.size()) >= d.t.machine_depth) return;
        within[kind] = !r.last;
        gone++;
        paused = 0;
        if (!kind) {
            answers.push({r.port, r.id, -1});
            r.id = answered + answers.size() - 1;
        }
        m.lines.push(r);
        entry[kind].pop();
        waiting++;
    }

    // One column command: of a read if one is ready, of a write otherwise.
    template <class Wrote>
    void columns(Dram& d, Wrote wrote) {
        // A line whose page is open joins those that await their column command, one a clock in each machine.
        for (Machine& m : machines)
            if (m.open < m.lines.size() && d.open(m.lines[m.open])) m.open++, opened++, wake = 0;
        if (!opened) return;
        for (int64_t slot = 0; slot < d.t.column_slots; slot++) {
            const int64_t clock = d.now + COLUMN_SLOT_STEP * slot;
            int chosen = -1;
            for (int k = 0; k < MACHINES && (chosen < 0 || writes(machines[chosen])); k++) {
                const int i = (turn_column + k) % MACHINES;
                Machine& m = machines[i];
                if (!m.open || (chosen >= 0 && writes(m)) || !may(d, m, clock)) continue;
                chosen = i;
            }
            if (chosen < 0) continue;
            column(d, machines[chosen], clock, wrote);
            turn_column = (chosen + 1) % MACHINES;
            wake = 0;
            return;
        }
    }
    // Whether the column command of a machine's first line may go.
    bool may(const Dram& d, Machine& m, int64_t clock) {
        if (m.ready <= clock) {
            const bool write = writes(m);
            m.ready = d.column_time(m.lines[0], write);
            if (write) m.ready = Dram::later(m.ready, m.modify);
        }
        if (m.ready > clock) wakes(m.ready);
        return m.ready <= clock;
    }
    // Whether a machine's first line asks for a write command now: a partial line is read before.
    static bool writes(const Machine& m) { return m.lines[0].write && (!m.lines[0].partial || m.modify >= 0); }

    template <class Wrote>
    void column(Dram& d, Machine& m, int64_t clock, Wrote wrote) {
        const bool write = writes(m);
        const DdrRequest r = m.lines[0];
        d.column(r, write, clock);
        m.ready = 0;
        if (!write && r.write) {
            m.modify = clock + d.t.rmw;
            return;
        }
        d.count(r);
        if (write)
            wrote(r.port, r.id);
        else
            answers[uint32_t(r.id - answered)].clock = clock + d.t.cl + d.t.bl2;
        m.modify = -1;
        m.lines.pop();
        m.open--;
        opened--;
        waiting--;
    }

    // One activation and one precharge, each for a machine's first line without an open page.
    void rows(Dram& d) {
        if (waiting == opened) return;
        int64_t clock = d.now + ACTIVATE_SLOT;
        for (int k = 0; k < MACHINES; k++) {
            const int i = (turn_row + k) % MACHINES;
            Machine& m = machines[i];
            if (m.open == m.lines.size()) continue;
            DdrRequest& r = m.lines[m.open];
            if (d.bank[r.bank].row >= 0) continue;
            const int64_t at = d.activate_time(r);
            wakes(at);
            if (at > clock) continue;
            d.activate(r, clock);
            turn_row = (i + 1) % MACHINES;
            break;
        }
        clock = d.now + PRECHARGE_SLOT;
        for (int k = 0; k < MACHINES; k++) {
            const int i = (turn_close + k) % MACHINES;
            Machine& m = machines[i];
            if (m.open == m.lines.size()) continue;
            DdrRequest& r = m.lines[m.open];
            const Dram::Bank& b = d.bank[r.bank];
            if (b.row < 0 || d.open(r) || needed(m, r.bank)) continue;
            wakes(b.precharge);
            if (b.precharge > clock) continue;
            d.precharge(r.bank, clock);
            r.closed = true;
            turn_close = (i + 1) % MACHINES;
            break;
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
            answers.pop();
            answered++;
        }
    }
};
