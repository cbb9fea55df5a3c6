// hw.kernel.doorbell.Doorbell
#pragma once

#include <cstdint>

namespace twin {

class Doorbell {
  public:
    bool asks = false, polled = false;
    uint32_t value = 0;
    void step(bool enable, bool waiting, bool taken, bool answered, uint32_t word) {
        polled = asked && answered;
        if (asked) {
            if (taken) asks = false;
            if (answered) asked = false, value = word, pause = GLANCE - 1;
        } else if (pause && !(waiting && pause < GLANCE - POLL)) {
            pause--;
        } else if (enable) {
            asked = asks = true;
        }
    }

  private:
    static constexpr int GLANCE = 4096, POLL = 64;
    bool asked = false;
    int pause = 0;
};

}  // namespace twin
