// The MLP core's way to memory: results are staged and leave as whole beats.
#pragma once

#include "mlp_array.h"

namespace twin {

// Words in one order through five stages of nine cycles; of a word, whether it is its beat's last.
class MlpSigmoid {
  public:
    bool busy = false, has = false, last = false;

    bool ready() const { return !held; }
    void step(bool comes, bool ends, bool taken) {
        busy = comes || held || has || inside;
        const bool blocked = inside >> (STAGES - 1) && has && !taken;
        const bool turn = (phase == INTERVAL - 1 && !blocked) || !inside;
        if (taken) has = false;
        if (turn) {
            if (inside >> (STAGES - 1)) has = true, last = lasts >> (STAGES - 1);
            inside = (inside << 1 | held) & MASK;
            lasts = (lasts << 1 | held_last) & MASK;
            held = false;
            phase = 0;
        } else if (phase != INTERVAL - 1) {
            phase++;
        }
        if (comes) held = true, held_last = ends;
    }

  private:
    static constexpr int INTERVAL = 9, STAGES = 5;
    static constexpr uint32_t MASK = (1u << STAGES) - 1;
    uint32_t inside = 0, lasts = 0;     // a bit a stage
    int phase = 0;
    bool held = false, held_last = false;
};

class MlpWriter {
  public:
    Fifo<Request> requests{REQUESTS};       // from the outputs' begin
    bool data = false, room = true, idle = false;

    MlpWriter(const MlpShape& shape, uint32_t staged_tiles, uint32_t output_beats)
        : shape(shape), groups(std::max<int64_t>(2, staged_tiles / shape.groups_per_beat())),
          runs(shape.samples() <= output_beats), tiles(uint32_t(groups)), places(groups) {}
    // results: whose row is there; reserve: a further tile will be; taken: the request, the data.
    void step(const MlpResults& results, bool reserve, bool request_taken, bool data_taken) {
        // The beat under way: to the port, or a word to the sigmoid.
        const bool free = !data || data_taken, row = results.row;
        bool word = false, word_ends = false, take = false, move = false;
        if (beat.there) {
            if (beat.staged.tile.job->activation != ACTIVATION_SIGMOID) {
                take = move = free && !sigmoid.busy;
            } else if (sigmoid.ready() && steady) {
                word = true;
                word_ends = at == words() - 1;
                at = word_ends ? 0 : at + 1;
                move = word_ends;
            }
        }
        const bool result = free && sigmoid.has, result_ends = sigmoid.last;
        idle = !(row || opened || closing || tiles.held() || next || now || beat.there || sigmoid.busy || data
                 || requests.held());
        const bool freed_now = move && beat.at == beat.staged.all() - 1;

        // The tile under way.
        bool go = false, ask = false, final = false;
        Request request{};
        if (now && (!beat.there || move)) {
            const bool begins = at_beat % (now_run() ? now_tile.all() : now_tile.tile.each) == 0;
            go = requests.ready() || !begins;
            final = at_beat == now_tile.all() - 1;
            ask = go && begins;
            const int64_t sample = at_beat / now_tile.tile.each;
            request = {uint64_t(now_tile.address + sample * now_tile.tile.job->out_stride),
                       uint32_t(now_run() ? now_tile.all() : now_tile.tile.each), 0};
        }
        const bool goes = second || tiles.has || alone;
        const bool load = next && !wait && goes && (!now || (go && final));

        sigmoid.step(word, word_ends, result);
        if (data_taken) data = false;
        data |= take || (result && result_ends);
        steady = beat.there && !move;
        if (!beat.there || move) beat = {go, go ? now_tile : Staged{}, at_beat};
        if (go) {
            at_beat++;
            if (final) now = false;
        }
        requests.step(ask, request, request_taken);
        const bool shift = !next || load;
        if (load) {
            now = true;
            now_tile = next_tile;
            at_beat = 0;
            second = !second && tiles.has;
        }
        const bool waits = next && !load && wait;
        if (waits) wait--, next_tile.address += next_tile.tile.job->out_stride * shape.rows;
        const bool comes = shift && tiles.has;
        if (shift) {
            next = tiles.has;
            if (next) next_tile = tiles.o, wait = next_tile.tile.wait;
        }
        tiles.step(closing, closing_tile, comes);
        enter(results, reserve, freed_now);
    }

  private:
    static constexpr uint32_t REQUESTS = 16;
    struct Staged {
        MlpTile tile;
        int64_t address;

        int64_t all() const { return tile.count * tile.each; }      // beats
    };
    struct Out {
        bool there;
        Staged staged;
        int64_t at;
    };
    const MlpShape shape;
    int64_t groups;
    bool runs;
    MlpSigmoid sigmoid;
    Fifo<Staged> tiles;
    Staged closing_tile{}, next_tile{}, now_tile{};
    Out beat{};
    int64_t places, coming = 0, at = 0, at_beat = 0, wait = 0;      // coming: tiles that are reserved and not in
    bool closing = false, next = false, now = false, opened = false, steady = false, second = false;
    bool alone = true, freed = false, shared = false;   // alone: a tile waits for no other

    bool now_run() const { return runs && now_tile.tile.job->out_stride == now_tile.tile.each; }
    // That count of the beat under way.
    int64_t words() const {
        const MlpTile& tile = beat.staged.tile;
        return beat.at % tile.each == tile.each - 1 ? tile.words : shape.words;
    }
    // Rows come in, and places for tiles.
    void enter(const MlpResults& results, bool reserve, bool freed_now) {
        closing = false;
        bool shares = false;
        if (results.row) {
            opened = true;
            if (results.last) {
                shares = results.tile.half;
                closing = results.tile.fills;
                if (closing) {
                    closing_tile = {results.tile, results.tile.address};
                    opened = false;
                }
            }
        }
        places += int(freed) + int(shared) - int(reserve);
        freed = freed_now, shared = shares;
        room = places > 0;
        coming += int(reserve) - int(results.row && results.last);
        alone = !coming || places < groups / 2;
    }
};

}  // namespace twin
