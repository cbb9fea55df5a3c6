// What csim needs of hls::stream: a queue without a bound. Vitis HLS brings its own header of this name.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <deque>

namespace hls {

template <class T> class stream {
  public:
    stream() {}
    explicit stream(const char *) {}
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;

    bool empty() const { return queue.empty(); }
    size_t size() const { return queue.size(); }
    void write(const T &value) { queue.push_back(value); }
    T read() {
        if (queue.empty()) {    // hardware would wait for ever
            std::fprintf(stderr, "csim: read of an empty stream\n");
            std::abort();
        }
        T value = queue.front();
        queue.pop_front();
        return value;
    }

  private:
    std::deque<T> queue;
};

}  // namespace hls
