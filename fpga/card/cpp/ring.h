// A queue in a ring of a power of two, which grows when it is full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

template <class T>
class Ring {
  public:
    explicit Ring(size_t most = 8) {
        size_t size = 1;
        while (size < most) size *= 2;
        items.resize(size);
        mask = uint32_t(size - 1);
    }
    bool empty() const { return head == tail; }
    uint32_t size() const { return tail - head; }
    T& front() { return items[head & mask]; }
    const T& front() const { return items[head & mask]; }
    T& operator[](uint32_t number) { return items[(head + number) & mask]; }
    const T& operator[](uint32_t number) const { return items[(head + number) & mask]; }
    T& push(const T& item) {
        if (size() > mask) grow();
        return items[tail++ & mask] = item;
    }
    T pop() { return items[head++ & mask]; }
    void drop() { head++; }
    void clear() { head = tail = 0; }

  private:
    std::vector<T> items;
    uint32_t mask, head = 0, tail = 0;

    void grow() {
        std::vector<T> more(2 * items.size());
        const uint32_t count = size();
        for (uint32_t k = 0; k < count; k++) more[k] = (*this)[k];
        items = std::move(more);
        mask = uint32_t(items.size() - 1);
        head = 0, tail = count;
    }
};
