// hls::stream between threads, with the depth of its pragma: as in hardware a process waits where one is full or empty.
// Where all wait for one another the simulation ends. Without a depth: a queue without a bound.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

namespace hls {

template <class T> class stream {
  public:
    explicit stream(const char *name = "", size_t depth = size_t(-1)) : name(name), depth(depth) {}
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;

    bool empty() const { return queue.empty(); }
    size_t size() const { return queue.size(); }
    void write(const T &value) {
        std::unique_lock<std::mutex> lock(mutex);
        wait(lock, [this] { return queue.size() < depth; });
        queue.push_back(value);
        changed.notify_all();
    }
    T read() {
        std::unique_lock<std::mutex> lock(mutex);
        wait(lock, [this] { return !queue.empty(); });
        T value = queue.front();
        queue.pop_front();
        changed.notify_all();
        return value;
    }

  private:
    template <class Ready> void wait(std::unique_lock<std::mutex> &lock, Ready ready) {
        if (changed.wait_for(lock, std::chrono::seconds(20), ready)) return;
        std::fprintf(stderr, "csim: nothing goes on at %s\n", name);
        std::_Exit(3);
    }
    const char *name;
    const size_t depth;
    std::deque<T> queue;
    std::mutex mutex;
    std::condition_variable changed;
};

}  // namespace hls
