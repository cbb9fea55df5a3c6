// The drive behind the peer-to-peer window, and the host process that moves its pages into the ring.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "link.h"
#include "port.h"

struct SsdTiming {
    // In kernel cycles; rates in cycles for 4096 bytes.
    int64_t tr = 13500, channels = 8, dies = 4, flash_page = 16384, bus = 1024, command = 0, setup = 0, depth = 32;
    int64_t submit = 3000, complete = 1500, poll = 300, doorbell = 300;
};

class Ssd {
  public:
    SsdTiming t;
    uint64_t pages = 0, moved = 0, credit_waits = 0;
    // Faults.
    std::vector<uint8_t> lost;
    int64_t dies_after = -1;
    uint32_t ahead = 0;
    int64_t ahead_after = 0;

    void attach(Memory* memory, Lane* inward) { m = memory, lane = inward; }

    void stream(const uint8_t* content, uint64_t content_bytes, uint64_t page, const uint64_t* list, uint64_t number,
                uint64_t ring_at, uint64_t ring_size, uint64_t progress_at, uint64_t doorbell_at, uint64_t beat_bytes) {
        data = content;
        data_bytes = content_bytes;
        page_bytes = page;
        transfers = list;
        count = number;
        ring = ring_at;
        ring_bytes = ring_size;
        progress = progress_at;
        doorbell = doorbell_at;
        beat = beat_bytes;
        stop_run();
    }

    // A run begins: nothing has been brought and nothing consumed.
    void start() {
        dead = false;
        next = landed = freed = 0;
        flights.clear();
        done.assign(count, 0);
        bells.clear();
        closing.clear();
        on_link = -1;
        die_free.assign(t.channels * t.dies, 0);
        die_page.assign(t.channels * t.dies, UINT64_MAX);
        channel_free.assign(t.channels, 0);
        wake = UINT64_MAX;
        m->empty.clear();
        running = count > 0;
        if (!count) return;
        m->ring_base = ring;
        m->empty.assign(ring_bytes / Store::PAGE, 1);
        released = uint32_t(transfers[1]) & MASK;
        poll_at = m->cycle;
        put(progress, released);
        put(doorbell, released);
    }
    // The run is over, whatever was still on its way to the card.
    void stop_run() {
        running = false;
        m->empty.clear();
    }

    void tick() {
        if (!running || dead) return;
        uint64_t now = m->cycle;
        if (now >= poll_at) {
            released = m->store->word(progress) & MASK;
            poll_at = now + uint64_t(t.poll);
            for (; freed < landed && ((released - end_of(freed)) & MASK) < 1u << 29; freed++) empty(freed, 1);
        }
        while (!bells.empty() && bells.front().at <= now) {
            put(doorbell, bells.front().position);
            bells.erase(bells.begin());
        }
        while (!closing.empty() && closing.front() <= now) closing.pop_front();
        if (next < count && int64_t(flights.size() + closing.size()) < t.depth) {
            if (room())
                issue();
            else
                credit_waits++;
        }
        if (now >= wake) flash();
        if (on_link < 0 && !flights.empty()) choose();
        if (on_link >= 0) {
            // Its lines reach the card's memory evenly over the time that the link takes.
            Flight& f = flights[on_link];
            const uint64_t lines = page_bytes / LINE, span = lane->free - link_start;
            if (lane->is_free(now) || (now - link_start) * lines >= (link_lines + 1) * span) {
                const uint64_t due = lane->is_free(now) ? lines : (now - link_start) * lines / span;
                arrive(to_write, target(f.number), lines, due, link_lines);
            }
            if (lane->is_free(now)) land();
        }
        finish();
    }
    WriteQueue to_write;

  private:
    static constexpr uint32_t MASK = (1u << 30) - 1;
    // ASKED until `ready`, then it waits for its die; READ into the die's register until then, then it waits for the
    // channel; SENT to the drive's buffer until then, then it waits for the link.
    enum Stage { ASKED, READ, SENT };
    struct Flight {
        uint64_t number, flash, die, ready;
        Stage stage;
    };
    struct Bell {
        uint64_t at;
        uint32_t position;
    };
    struct Landed {
        uint64_t number, at;
    };
    Memory* m = nullptr;
    Lane* lane = nullptr;
    const uint8_t* data = nullptr;
    const uint64_t* transfers = nullptr;  // page, position
    uint64_t data_bytes = 0, page_bytes = 4096, count = 0, ring = 0, ring_bytes = 0, progress = 0, doorbell = 0, beat = 64;
    uint64_t next = 0, landed = 0, freed = 0, poll_at = 0, link_start = 0, link_lines = 0;
    int on_link = -1;
    uint32_t released = 0;
    bool dead = false, running = false;
    std::vector<Flight> flights;
    std::vector<uint8_t> done;
    std::vector<Bell> bells;
    std::deque<uint64_t> closing;  // landed requests whose completion the host has not seen yet
    std::vector<uint64_t> die_free, die_page, channel_free;
    std::vector<uint8_t> asked;  // dies that a request waits for
    uint64_t wake = UINT64_MAX;  // when a die, a channel or a request is next ready

    void put(uint64_t at, uint32_t value) { m->store->write(at, &value, 4); }
    uint64_t target(uint64_t number) const { return ring + transfers[2 * number + 1] * beat % ring_bytes; }
    uint32_t end_of(uint64_t number) const {
        return uint32_t(transfers[2 * number + 1] + page_bytes / beat) & MASK;
    }
    // Also where more was released than has been brought.
    bool room() const {
        const uint32_t taken = (end_of(next) - released) & MASK;
        return taken <= ring_bytes / beat || taken > MASK / 2;
    }
    // Whether nobody may read a page of the ring: from its release until the next one has landed there.
    void empty(uint64_t number, uint8_t value) {
        uint64_t page = (target(number) - ring) / Store::PAGE;
        for (uint64_t i = 0; i < page_bytes / Store::PAGE; i++) m->empty[page + i] = value;
    }

    void issue() {
        uint64_t flash = transfers[2 * next] * page_bytes / uint64_t(t.flash_page), at = m->cycle + uint64_t(t.submit);
        flights.push_back({next++, flash, flash % die_free.size(), at, ASKED});
        if (at < wake) wake = at;
    }
    // A die reads the flash page, those of its requests in their order; then the channel carries the data, what was read
    // first goes first, and before commands.
    void flash() {
        const uint64_t now = m->cycle;
        carry(now);
        read(now);
        carry(now);     // what lay in a register
        wake = UINT64_MAX;
        auto later = [&](uint64_t at) {
            if (at > now && at < wake) wake = at;
        };
        for (const Flight& f : flights)
            if (f.stage != SENT) later(f.ready);
        for (uint64_t at : die_free) later(at);
        for (uint64_t at : channel_free) later(at);
    }
    void read(uint64_t now) {
        asked.assign(die_free.size(), 0);
        for (Flight& f : flights) {
            if (f.stage != ASKED || f.ready > now || asked[f.die]++ || die_free[f.die] > now) continue;
            uint64_t& channel = channel_free[f.die % channel_free.size()];
            if (die_page[f.die] != f.flash) {  // else it still lies in the die's register
                if (t.command && channel > now) continue;
                if (t.command) channel = now + uint64_t(t.command);
                die_free[f.die] = now + uint64_t(t.command + t.tr);
                die_page[f.die] = f.flash;
            }
            f.ready = die_free[f.die] > now ? die_free[f.die] : now;
            f.stage = READ;
        }
    }
    void carry(uint64_t now) {
        for (size_t channel = 0; channel < channel_free.size(); channel++) {
            if (channel_free[channel] > now) continue;
            Flight* first = nullptr;
            for (Flight& f : flights)
                if (f.stage == READ && f.die % channel_free.size() == channel && f.ready <= now &&
                    (!first || f.ready < first->ready))
                    first = &f;
            if (!first) continue;
            first->stage = SENT;
            first->ready = channel_free[channel] = now + uint64_t(t.setup) + uint64_t(t.bus) * page_bytes / 4096;
        }
    }
    void choose() {
        if (!lane->is_free(m->cycle) || (lane->host_waits && lane->drive_was_last)) return;
        for (size_t i = 0; i < flights.size(); i++)
            if (flights[i].stage == SENT && flights[i].ready <= m->cycle && (on_link < 0 || flights[i].ready < flights[on_link].ready)) on_link = int(i);
        if (on_link < 0) return;
        link_start = m->cycle;
        lane->take(link_start, page_bytes);
        lane->drive_was_last = true;
        link_lines = 0;
    }
    void land() {
        uint64_t number = flights[on_link].number;
        closing.push_back(m->cycle + uint64_t(t.complete));
        flights.erase(flights.begin() + on_link);
        on_link = -1;
        if (number < lost.size() && lost[number]) return;
        m->store->write(target(number), data + transfers[2 * number] * page_bytes, page_bytes);
        empty(number, 0);
        done[number] = 1;
        pages++;
        moved += page_bytes;
    }
    // Pages are announced in order, each when it and all before it have landed.
    void finish() {
        while (landed < count && done[landed]) {
            landed++;
            uint32_t position = end_of(landed - 1);
            if (ahead && int64_t(landed) >= ahead_after) position = (position + ahead) & MASK;
            bells.push_back({m->cycle + uint64_t(t.complete + t.doorbell), position});
            if (dies_after >= 0 && int64_t(landed) >= dies_after) {
                put(doorbell, position);
                dead = true;
                return;
            }
        }
        if (dies_after == 0) dead = true;
    }
};
