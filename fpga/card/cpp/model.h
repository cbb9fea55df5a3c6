// What the harness knows of a Verilated model: its pins, that it evaluates, and is told when a run begins.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

// Pins of one master, as the Verilated model holds them.
struct Pins {
    uint8_t *awvalid, *awready, *awid, *awlen, *awsize, *awburst;
    uint8_t *wvalid, *wready, *wlast, *bvalid, *bready, *bid, *bresp;
    uint8_t *arvalid, *arready, *arid, *arlen, *arsize, *arburst;
    uint8_t *rvalid, *rready, *rid, *rresp, *rlast;
    uint64_t *awaddr, *araddr;
    void *wdata, *wstrb, *rdata;  // rdata: null where nobody looks at what is read
};

struct ControlPins {
    uint8_t *awvalid, *awready, *wvalid, *wready, *wstrb, *bvalid, *bready, *bresp;
    uint8_t *arvalid, *arready, *rvalid, *rready, *rresp;
    uint16_t *awaddr, *araddr;
    uint32_t *wdata, *rdata;
};

// What the generated bind.h fills in.
struct Binding {
    std::vector<Pins> masters;
    std::vector<int> beats;
    ControlPins control{};
    bool has_control = false;
    uint8_t *clk = nullptr, *rst = nullptr, *interrupt = nullptr;
};

struct Model {
    virtual ~Model() = default;
    virtual void eval() = 0;
    virtual void begin() {}
};

// A model whose registers and memories begin at random, and where its pins are.
std::unique_ptr<Model> make_model(int seed, Binding& pins);
