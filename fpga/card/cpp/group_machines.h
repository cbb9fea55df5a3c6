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

#include <deque>

#include "dram.h"

class GroupMachines {
  public:
    void reset(const Dram& d) {
        // A machine serves a group; where there are two groups only, the banks with one lowest address bit of one.
        halves = d.t.groups < MACHINES ? int(MACHINES / d.t.groups) : 1;
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
        gone = paused = waiting = 0;
        last_answer = 0;
    }
    bool room(const Dram&, bool write) const { return entry[write].size() < ENTRY; }
    bool idle() const { return !waiting && entry[0].empty() && entry[1].empty() && answers.empty(); }
    void put(const Dram&, const DdrRequest& r) { entry[r.write].push_back(r); }

    template <class Read, class Wrote>
    void advance(Dram& d, int64_t end, Read read, Wrote wrote) {
        const int64_t step = d.t.controller_clocks;
        while (d.now < end) {
            if (d.now >= d.refresh_at) {
                d.refresh();
                for (Machine& m : machines) m.open = 0;
            }
            if (idle()) {
                int64_t next = d.refresh_at < end ? d.refresh_at : end;
                d.now += (Dram::later(next - d.now, 1) + step - 1) / step * step;
                continue;
            }
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
        std::deque<DdrRequest> lines;
        size_t open = 0;       // lines at the front whose pages were found open or have been opened
        int64_t modify = -1;   // when the first line, a partial write, has been read and may be written
    };
    Machine machines[MACHINES];
    std::deque<DdrRequest> entry[2];  // reads, writes
    struct Answer {
        int port;
        uint64_t id;
        int64_t clock;  // in which its last data arrive; before its column command -1
    };
    std::deque<Answer> answers;  // in the order of the reads' entry
    uint64_t answered = 0;
    int halves = 2;
    int kind = 0;                       // what enters now: reads, writes
    bool within[2] = {false, false};    // a burst of them has entered in part
    int64_t gone = 0, paused = 0;       // lines of them in this turn; clocks in which none came
    int64_t waiting = 0, last_answer = 0;
    int turn_column = 0, turn_row = 0, turn_close = 0;

    Machine& of(const Dram& d, const DdrRequest& r) {
        int inner = r.bank % int(d.t.banks);
        return machines[(r.group * halves + inner % halves) % MACHINES];
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
        DdrRequest r = entry[kind].front();
        Machine& m = of(d, r);
        if (int64_t(m.lines.size()) >= d.t.machine_depth) return;
        entry[kind].pop_front();
        within[kind] = !r.last;
        gone++;
        paused = 0;
        if (!kind) {
            answers.push_back({r.port, r.id, -1});
            r.id = answered + answers.size() - 1;
        }
        m.lines.push_back(r);
        waiting++;
    }

    // One column command: of a read if one is ready, of a write otherwise.
    template <class Wrote>
    void columns(Dram& d, Wrote wrote) {
        // A line whose page is open joins those that await their column command, one a clock in each machine.
        for (Machine& m : machines)
            if (m.open < m.lines.size() && d.open(m.lines[m.open])) m.open++;
        for (int64_t slot = 0; slot < d.t.column_slots; slot++) {
            int64_t clock = d.now + COLUMN_SLOT_STEP * slot;
            for (bool write : {false, true})
                for (int k = 0; k < MACHINES; k++) {
                    int i = (turn_column + k) % MACHINES;
                    Machine& m = machines[i];
                    if (!m.open || writes(m) != write || d.column_time(m.lines[0], write) > clock) continue;
                    if (write && m.modify > clock) continue;
                    column(d, m, write, clock, wrote);
                    turn_column = (i + 1) % MACHINES;
                    return;
                }
        }
    }
    // Whether a machine's first line asks for a write command now: a partial line is read before.
    static bool writes(const Machine& m) { return m.lines[0].write && (!m.lines[0].partial || m.modify >= 0); }

    template <class Wrote>
    void column(Dram& d, Machine& m, bool write, int64_t clock, Wrote wrote) {
        DdrRequest r = m.lines[0];
        d.column(r, write, clock);
        if (!write && r.write) {
            m.modify = clock + d.t.rmw;
            return;
        }
        d.count(r);
        if (write)
            wrote(r.port, r.id);
        else
            answers[r.id - answered].clock = clock + d.t.cl + d.t.bl2;
        m.modify = -1;
        m.lines.pop_front();
        m.open--;
        waiting--;
    }

    // One activation and one precharge, each for a machine's first line without an open page.
    void rows(Dram& d) {
        int64_t clock = d.now + ACTIVATE_SLOT;
        for (int k = 0; k < MACHINES; k++) {
            int i = (turn_row + k) % MACHINES;
            Machine& m = machines[i];
            if (m.open == m.lines.size()) continue;
            DdrRequest& r = m.lines[m.open];
            if (d.bank[r.bank].row >= 0 || d.activate_time(r) > clock) continue;
            d.activate(r, clock);
            turn_row = (i + 1) % MACHINES;
            break;
        }
        clock = d.now + PRECHARGE_SLOT;
        for (int k = 0; k < MACHINES; k++) {
            int i = (turn_close + k) % MACHINES;
            Machine& m = machines[i];
            if (m.open == m.lines.size()) continue;
            DdrRequest& r = m.lines[m.open];
            const Dram::Bank& b = d.bank[r.bank];
            if (b.row < 0 || d.open(r) || b.precharge > clock || needed(m, r.bank)) continue;
            d.precharge(r.bank, clock);
            r.closed = true;
            turn_close = (i + 1) % MACHINES;
            break;
        }
    }
    // Whether lines before the first without an open page still await their column command in a bank.
    static bool needed(const Machine& m, int bank) {
        for (size_t k = 0; k < m.open; k++)
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
            answers.pop_front();
            answered++;
        }
    }
};
