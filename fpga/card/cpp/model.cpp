// The one part of a simulated card that is compiled with each model.
#include "model.h"

#include "Vtop.h"
#include "bind.h"
#include "verilated.h"

namespace {
struct CoreModel : Model {
    VerilatedContext context;
    std::unique_ptr<Vtop> top;

    CoreModel(int seed, Binding& pins) {
        context.randReset(2);
        context.randSeed(seed);
        top = std::make_unique<Vtop>(&context, "top");
        bind(*top, pins);
    }
    // The model goes by its thread's context, which may be that of another card, deleted before.
    ~CoreModel() override { Verilated::threadContextp(&context); }
    void eval() override { top->eval(); }
};
}

double sc_time_stamp() { return 0; }
std::unique_ptr<Model> make_model(int seed, Binding& pins) { return std::make_unique<CoreModel>(seed, pins); }
