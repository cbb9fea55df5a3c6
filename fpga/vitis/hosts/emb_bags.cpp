// One bag of embedding rows on a real card: eight rows in the card's memory, three of them added up by the EMB core.
//
//   g++ -std=c++17 -Wall -Wextra emb_bags.cpp -I $XILINX_XRT/include -L $XILINX_XRT/lib -lxrt_coreutil -luuid -pthread
//   ./a.out hotrail_emb.xclbin [words of a beat, 16 in the preset smartssd] [number of the card, 0]
//
// hotrail_emb.h lies beside this file in the package (or: python -m gen.rtl.headers). Prints how the run ended and the
// vector, and ends with 0 when the core has carried the instruction out.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

#include "hotrail_emb.h"

namespace {

// A buffer of at least `size` bytes, every one of them written: memory that was never written must not be read.
xrt::bo buffer(const xrt::device& device, const xrt::kernel& kernel, int argument, size_t size, const void* data) {
    xrt::bo made(device, (size + 4095) / 4096 * 4096, kernel.group_id(argument));
    auto* memory = made.map<uint8_t*>();
    std::memset(memory, 0, made.size());
    if (data) std::memcpy(memory, data, size);
    made.sync(XCL_BO_SYNC_BO_TO_DEVICE);
    return made;
}

// The first instance of a kernel, as v++ names it: of several at once XRT gives no register.
std::string first(const std::string& kernel) { return kernel + ":{" + kernel + "_1}"; }

// A number from `least` to `most`. Throws: the text is none.
unsigned number(const std::string& text, const std::string& name, unsigned least, unsigned most) {
    bool is_number = !text.empty() && text.size() < 5 && text.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || std::stoul(text) < least || std::stoul(text) > most)
        throw std::invalid_argument(name + " must be " + std::to_string(least) + " to " + std::to_string(most) +
                                    ", not '" + text + "'");
    return unsigned(std::stoul(text));
}

bool is_over(ert_cmd_state state) { return state >= ERT_CMD_STATE_COMPLETED && state != ERT_CMD_STATE_SUBMITTED; }

// The state in which a run ends, or is after a second. An emulated core is slow, so it may take for ever.
auto ended(const xrt::run& work) {
    const bool is_emulated = std::getenv("XCL_EMULATION_MODE") != nullptr;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    auto state = work.state();      // by looks, as not every XRT's wait knows a limit
    while (!is_over(state) && (is_emulated || std::chrono::steady_clock::now() < limit)) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        state = work.state();
    }
    return state;
}

int run(const std::string& xclbin, size_t words, unsigned card) {
    constexpr uint32_t rows = 8, taken[] = {1, 4, 6};
    xrt::device device(card);
    // Exclusively, for its abort register.
    xrt::kernel kernel(device, device.load_xclbin(xclbin), first("hotrail_emb"),
                       xrt::kernel::cu_access_mode::exclusive);

    // A row is one beat. Element d of row r is r + d / 100.
    std::vector<float> table(rows * words);
    for (size_t i = 0; i < table.size(); i++) table[i] = float(i / words) + float(i % words) / 100;
    // Inputs: the bag's length in beat 0, its index words from beat 1 on, {device[31:30], row[29:0]}.
    const size_t index_beats = (3 + words - 1) / words;
    std::vector<uint32_t> inputs((1 + index_beats) * words);
    inputs[0] = 3;
    for (size_t i = 0; i < 3; i++) inputs[words + i] = uint32_t(HOTRAIL_EMB_DEVICE_DRAM) << 30 | taken[i];

    hotrail_emb_instruction bag{};
    HOTRAIL_EMB_SET(&bag, OPCODE, HOTRAIL_EMB_BAGS);
    HOTRAIL_EMB_SET(&bag, MODE, HOTRAIL_EMB_MODE_SUM);
    HOTRAIL_EMB_SET(&bag, COUNT, 1);
    HOTRAIL_EMB_SET(&bag, LENGTHS, 0);
    HOTRAIL_EMB_SET(&bag, INDICES, 1);
    HOTRAIL_EMB_SET(&bag, INDICES_COUNT, 3);
    HOTRAIL_EMB_SET(&bag, DRAM_ROWS, rows);
    HOTRAIL_EMB_SET(&bag, ROW_BEATS, 1);
    HOTRAIL_EMB_SET(&bag, CHUNK_ROWS, 1);
    HOTRAIL_EMB_SET(&bag, OUT_STRIDE, 1);

    // Arguments by number, in the order of hotrail_emb.h.
    const size_t beat = 4 * words;
    auto program = buffer(device, kernel, 0, sizeof bag, &bag);
    auto input = buffer(device, kernel, 2, inputs.size() * 4, inputs.data());
    auto output = buffer(device, kernel, 4, beat, nullptr);
    auto memory = buffer(device, kernel, 6, table.size() * 4, table.data());
    auto ring = buffer(device, kernel, 8, beat, nullptr);
    auto result = buffer(device, kernel, 10, sizeof(hotrail_emb_result), nullptr);
    auto work = kernel(program, 1u, input, uint32_t(1 + index_beats), output, 1u, memory, rows, ring, 0u, result,
                       3000000u);
    if (const auto state = ended(work); state != ERT_CMD_STATE_COMPLETED) {
        std::cerr << (is_over(state) ? "XRT has given the run up" : "the core was not done after a second");
        try {
            kernel.write_register(HOTRAIL_EMB_REG_ABORT, 1);
        } catch (const std::exception& error) {
            std::cerr << " (" << error.what() << ")";
        }
        if (ended(work) == ERT_CMD_STATE_COMPLETED) {
            std::cerr << ", and was told to stop\n";
            return 1;
        }
        // The core may still write, so no buffer is given back before the process ends.
        std::cerr << ", and the core may still be at work: reset the card\n";
        std::_Exit(1);
    }

    result.sync(XCL_BO_SYNC_BO_FROM_DEVICE);
    output.sync(XCL_BO_SYNC_BO_FROM_DEVICE);
    hotrail_emb_result block{};
    std::memcpy(&block, result.map<void*>(), sizeof block);
    std::cout << "code " << block.code << ", instructions " << block.instructions << ", cycles " << block.cycles
              << "\nvector";
    for (size_t d = 0; d < words; d++) std::cout << ' ' << output.map<float*>()[d];
    std::cout << '\n';
    if (block.code == HOTRAIL_EMB_CODE_OK && block.instructions == 1) return 0;
    std::cerr << (block.code ? "the core ended with an error\n" : "the core has written no result: none has run\n");
    return 1;
}

}  // namespace

int main(int count, char** given) {
    if (count < 2) {
        std::cerr << "usage: " << given[0] << " hotrail_emb.xclbin [words of a beat] [number of the card]\n";
        return 2;
    }
    try {
        const unsigned words = count > 2 ? number(given[2], "words of a beat", 4, 16) : 16;
        if (words & (words - 1)) throw std::invalid_argument("words of a beat must be a power of two");
        return run(given[1], words, count > 3 ? number(given[3], "number of the card", 0, 255) : 0);
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
