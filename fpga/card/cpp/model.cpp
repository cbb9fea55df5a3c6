// The one part of a simulated card that is compiled with each model.
#include "model.h"

#include "Vtop.h"
#include "bind.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

#include <cstdlib>

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
    ~CoreModel() override {
        Verilated::threadContextp(&context);
#if VM_COVERAGE
        if (const char* file = std::getenv("HOTRAIL_TOGGLES")) context.coveragep()->write(file);
#endif
    }
    void eval() override { top->eval(); }
#if VM_COVERAGE
    void begin() override { context.coveragep()->zero(); }
#endif
};
}

double sc_time_stamp() { return 0; }
std::unique_ptr<Model> make_model(int seed, Binding& pins) { return std::make_unique<CoreModel>(seed, pins); }
