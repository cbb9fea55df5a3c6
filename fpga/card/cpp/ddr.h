// The card's memory: one rank of DDR4 or one pseudo-channel of HBM2 behind one of two controllers.
#pragma once

#include <unordered_map>

#include "dram.h"
#include "fr_fcfs.h"
#include "group_machines.h"

class Ddr {
  public:
    Dram dram;
    DdrTiming& t = dram.t;

    void reset() {
        dram.reset();
        queue.reset(dram);
        machines.reset(dram);
    }
    // Forgets what is queued; the rows stay as they are.
    void clear_requests() {
        queue.clear();
        machines.clear();
        begun.clear();
    }
    bool room(bool write) const { return t.policy ? machines.room(dram, write) : queue.room(dram, write); }
    bool idle() const { return queue.idle() && machines.idle(); }
    // Lines that the controller's port takes in a kernel cycle, as far as there is room.
    int lines_a_cycle() const { return t.policy ? 2 : 1; }
    // Whether a burst's lines enter one behind the other, those of no other port between them.
    bool keeps_bursts() const { return t.policy; }
    void put(uint64_t line, int port, uint64_t id, bool write, bool last, bool partial) {
        for (int64_t k = 0; k < t.bursts; k++) {
            DdrRequest r = dram.request(line * uint64_t(t.bursts) + uint64_t(k), port, id, write, last, partial);
            if (t.policy)
                machines.put(dram, r);
            else
                queue.put(dram, r);
        }
    }
    // Up to the end of kernel cycle `cycle`; read(port, id, clock) and wrote(port, id) tell of column accesses,
    // `clock` being the one in which the last data of the burst arrive.
    template <class Read, class Wrote>
    void advance(uint64_t cycle, Read read, Wrote wrote) {
        int64_t end = int64_t((cycle + 1) * uint64_t(t.mhz) / uint64_t(t.kernel_mhz));
        if (t.policy)
            machines.advance(dram, end, read, wrote);
        else if (t.bursts == 1)
            queue.advance(dram, end, read, wrote);
        else
            queue.advance(dram, end, [&](int port, uint64_t id, int64_t clock) {
                if (whole(port, id)) read(port, id, clock);
            }, wrote);
    }
    // The first kernel cycle that begins when clock `clock` has passed.
    uint64_t cycle_of(int64_t clock) const {
        return (uint64_t(clock) * uint64_t(t.kernel_mhz) + uint64_t(t.mhz) - 1) / uint64_t(t.mhz);
    }

  private:
    FrFcfs queue;
    GroupMachines machines;
    std::unordered_map<uint64_t, int64_t> begun;  // lines of which some bursts have been read: how many

    // Whether with this burst all of a line have been read.
    bool whole(int port, uint64_t id) {
        const uint64_t key = id << 8 | uint8_t(port);
        if (++begun[key] < t.bursts) return false;
        begun.erase(key);
        return true;
    }
};
