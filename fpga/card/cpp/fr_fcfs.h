// A first-ready, first-come controller, as simulators of DRAM have it: at most one command a clock, that of the oldest
// request whose next command's time has come; where the memory has a bus for row commands, one on each bus. A row that a
// waiting access needs is not closed.
#pragma once

#include "dram.h"

class FrFcfs {
  public:
    void reset(const Dram& d) {
        hits.assign(d.bank.size(), 0);
        clear();
        wake = row_free = 0;
    }
    // Forgets what is queued; the rows stay as they are.
    void clear() {
        reads.clear();
        writes.clear();
        draining = false;
    }
    bool room(const Dram& d, bool write) const {
        const int64_t after = int64_t((write ? writes : reads).size()) + d.t.bursts;
        return after <= (write ? d.t.write_queue : d.t.read_queue);
    }
    bool idle() const { return reads.empty() && writes.empty(); }
    void put(const Dram& d, const DdrRequest& r) {
        (r.write ? writes : reads).push_back(r);
        wake = d.now;
    }
    template <class Read, class Wrote>
    void advance(Dram& d, int64_t end, Read read, Wrote wrote) {
        while (d.now < end) {
            int64_t next = d.refresh_at < wake ? d.refresh_at : wake;
            if (d.now < next) {
                d.now = next < end ? next : end;
                continue;
            }
            if (d.now < d.refresh_at)
                command(d, read, wrote);
            else if (!d.t.bank_refresh)
                wake = d.refresh();
            else {
                d.refresh_bank();
                command(d, read, wrote);
            }
            d.now++;
        }
    }

  private:
    std::vector<int64_t> hits;  // of each bank: accesses of the queue under service that its open row serves
    std::vector<DdrRequest> reads, writes;
    int64_t wake = 0, row_free = 0;  // row_free: the clock from which the bus for row commands is this channel's again
    bool draining = false;

    template <class Read, class Wrote>
    void command(Dram& d, Read read, Wrote wrote) {
        const DdrTiming& t = d.t;
        if (draining ? int64_t(writes.size()) <= t.write_low && !reads.empty() : false) draining = false;
        if (!draining && (int64_t(writes.size()) >= t.write_high || (reads.empty() && !writes.empty()))) draining = true;
        if (draining && writes.empty()) draining = false;
        std::vector<DdrRequest>& queue = draining ? writes : reads;
        wake = Dram::NEVER;
        if (queue.empty()) return;
        for (int64_t& h : hits) h = 0;
        for (const DdrRequest& r : queue)
            if (d.open(r)) hits[r.bank]++;
        uint64_t tried = 0;  // banks for whose rows an older request has already spoken
        bool gone[2] = {false, false};  // a row command, a column command, in this clock
        for (size_t i = 0; i < queue.size(); i++) {
            DdrRequest& r = queue[i];
            bool hit = d.open(r), close = !hit && d.bank[r.bank].row >= 0;
            if (!hit) {
                // A row that others still want stays open, unless this one has waited for too long.
                if (tried >> r.bank & 1 || (close && hits[r.bank] && d.now - r.arrived < t.age_limit)) continue;
                tried |= 1ull << r.bank;
            }
            if (gone[hit]) continue;
            int64_t at = hit ? d.column_time(r, draining) : close ? d.bank[r.bank].precharge : d.activate_time(r);
            if (!hit && t.row_bus) at = Dram::later(at, row_free);
            if (at > d.now) {
                if (at < wake) wake = at;
                continue;
            }
            gone[hit] = true;
            wake = d.now + 1;
            if (hit) {
                const int bank = r.bank;
                column(d, queue, i--, read, wrote);
                hits[bank]--;
            } else if (close) {
                d.precharge(r.bank, d.now);
                r.closed = true;
                row_free = d.now + t.row_bus;
            } else {
                d.activate(r, d.now);
                row_free = d.now + t.row_bus * t.act_clocks;
            }
            if (!t.row_bus || (gone[0] && gone[1])) return;
        }
    }

    template <class Read, class Wrote>
    void column(Dram& d, std::vector<DdrRequest>& queue, size_t which, Read read, Wrote wrote) {
        DdrRequest r = queue[which];
        queue.erase(queue.begin() + which);
        d.count(r);
        d.column(r, draining, d.now);
        if (draining)
            wrote(r.port, r.id);
        else
            read(r.port, r.id, d.now + d.t.cl + d.t.bl2);
        // Column access with auto-precharge: nobody waits for this row.
        if (d.t.close_page && hits[r.bank] == 1 && !wanted(draining ? reads : writes, r))
            d.precharge(r.bank, d.bank[r.bank].precharge);
    }
    static bool wanted(const std::vector<DdrRequest>& queue, const DdrRequest& r) {
        for (const DdrRequest& other : queue)
            if (other.bank == r.bank && other.row == r.row) return true;
        return false;
    }
};
