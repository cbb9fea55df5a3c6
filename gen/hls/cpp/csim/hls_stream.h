// What csim needs of hls::stream: a queue without a bound. Vitis HLS brings its own header of this name.
//
// It ends the simulation where hardware would not go on: at a read of an empty stream, and where a stream with a name, one
// of a dataflow region, is left with something in it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <deque>

namespace hls {

template <class T> class stream {
  public:
    explicit stream(const char *name = nullptr) : name(name) {}
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;
    ~stream() {
        if (name && !queue.empty()) fail("a region leaves something in", name);
    }

    bool empty() const { return queue.empty(); }
    size_t size() const { return queue.size(); }
    void write(const T &value) { queue.push_back(value); }
    T read() {
        if (queue.empty()) fail("read of an empty stream", name ? name : "");
        T value = queue.front();
        queue.pop_front();
        return value;
    }

  private:
    static void fail(const char *what, const char *stream) {
        std::fprintf(stderr, "csim: %s %s\n", what, stream);
        std::abort();
    }
    const char *name;
    std::deque<T> queue;
};

}  // namespace hls
