// Plays libfpga_mgmt for one slot: BAR0 is 4 KB of registers, BAR4 is memory of this process. The core is the test's:
// `f2_starts` is called for ap_start, and ap_idle comes back when it returns, unless the core is to hang.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 22, CTRL = 0, START = 1, IDLE = 4, SW_RESET = 0x100, OCL = 7, PCIS = 9 };

uint32_t f2_words[1024];
uint8_t *f2_memory;
void (*f2_starts)(void);
int f2_hangs, f2_obeys = 1, f2_open, f2_gone, f2_abort_at, f2_status_at;
uint16_t f2_leds = 1;
int f2_fails;    // what every call gives back

int fpga_mgmt_init(void) {
    if (f2_memory == 0) {
        f2_memory = aligned_alloc(4096, BYTES);
        memset(f2_memory, 0xA5, BYTES);
        f2_words[CTRL] = IDLE;
    }
    return f2_fails;
}

int fpga_mgmt_get_vLED_status(int slot, uint16_t *status) {
    *status = f2_leds;
    return slot != 0;
}

int fpga_pci_attach(int slot, int pf, int bar, uint32_t flags, int *handle) {
    if (slot != 0 || pf != 0 || (bar != 0 && bar != 4) || (bar == 4) != (flags == 1)) return -22;
    *handle = bar == 0 ? OCL : PCIS;
    ++f2_open;
    return 0;
}

int fpga_pci_detach(int handle) {
    --f2_open;
    return handle != OCL && handle != PCIS;
}

int fpga_pci_get_address(int handle, uint64_t offset, uint64_t dwords, void **pointer) {
    if (handle != PCIS || offset + 4 * dwords > BYTES) return -22;
    *pointer = f2_memory + offset;
    return 0;
}

int fpga_pci_peek(int handle, uint64_t offset, uint32_t *value) {
    if (handle != OCL) return -22;
    *value = f2_gone ? 0xFFFFFFFF : f2_words[offset / 4];
    return 0;
}

static void ends(void) {
    f2_words[CTRL] = IDLE;
    f2_words[f2_status_at / 4] = 0;
}

int fpga_pci_poke(int handle, uint64_t offset, uint32_t value) {
    if (handle != OCL) return -22;
    if (offset == CTRL && value & SW_RESET) ends();
    else if (offset == (uint64_t)f2_abort_at && offset) { if (f2_obeys) ends(); }
    else if (offset == CTRL && value & START) {
        f2_words[CTRL] = START;
        f2_words[f2_status_at / 4] = 1;
        if (f2_starts) f2_starts();
        if (!f2_hangs) ends();
    } else f2_words[offset / 4] = value;
    return 0;
}
