// The names by which fpga.card.sim sets what the memory and the drive take.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "dram.h"
#include "ssd.h"

using Named = std::map<std::string, int64_t*>;

inline Named named(DdrTiming& d) {
    return {{"banks", &d.banks}, {"groups", &d.groups}, {"cl", &d.cl}, {"cwl", &d.cwl}, {"trcd", &d.trcd},
            {"trp", &d.trp}, {"tras", &d.tras}, {"tccd_s", &d.tccd_s}, {"tccd_l", &d.tccd_l},
            {"trrd_s", &d.trrd_s}, {"trrd_l", &d.trrd_l}, {"tfaw", &d.tfaw}, {"twr", &d.twr},
            {"twtr_s", &d.twtr_s}, {"twtr_l", &d.twtr_l}, {"trtp", &d.trtp}, {"trefi", &d.trefi},
            {"trfc", &d.trfc}, {"bl2", &d.bl2}, {"mhz", &d.mhz}, {"kernel_mhz", &d.kernel_mhz},
            {"policy", &d.policy}, {"read_queue", &d.read_queue}, {"write_queue", &d.write_queue},
            {"write_high", &d.write_high}, {"write_low", &d.write_low}, {"age_limit", &d.age_limit},
            {"close_page", &d.close_page}, {"controller_clocks", &d.controller_clocks},
            {"machine_depth", &d.machine_depth}, {"column_slots", &d.column_slots},
            {"turn_lines", &d.turn_lines}, {"rmw", &d.rmw}, {"bursts", &d.bursts}, {"row_bus", &d.row_bus},
            {"act_clocks", &d.act_clocks}, {"bank_refresh", &d.bank_refresh}, {"trrefd", &d.trrefd},
            {"stacks", &d.stacks}, {"tccd_r", &d.tccd_r}};
}

inline Named named(SsdTiming& s) {
    return {{"tr", &s.tr}, {"channels", &s.channels}, {"dies", &s.dies}, {"flash_page", &s.flash_page},
            {"bus", &s.bus}, {"command", &s.command}, {"setup", &s.setup}, {"depth", &s.depth},
            {"submit", &s.submit}, {"complete", &s.complete}, {"poll", &s.poll}, {"doorbell", &s.doorbell}};
}
