module URAM288 #(
  parameter EN_ECC_RD_A = "FALSE", parameter EN_ECC_WR_A = "FALSE", parameter IREG_PRE_A = "FALSE",
  parameter OREG_A = "FALSE", parameter OREG_ECC_A = "FALSE",
  parameter EN_ECC_RD_B = "FALSE", parameter EN_ECC_WR_B = "FALSE", parameter IREG_PRE_B = "FALSE",
  parameter OREG_B = "FALSE", parameter OREG_ECC_B = "FALSE"
) (CLK, SLEEP, ADDR_A, ADDR_B, EN_A, EN_B, RDB_WR_A, RDB_WR_B, BWE_A, BWE_B, DIN_A, DIN_B, INJECT_SBITERR_A,
   INJECT_SBITERR_B, INJECT_DBITERR_A, INJECT_DBITERR_B, OREG_CE_A, OREG_CE_B, OREG_ECC_CE_A, OREG_ECC_CE_B,
   RST_A, RST_B, CAS_IN_ADDR_A, CAS_IN_ADDR_B, CAS_IN_BWE_A, CAS_IN_BWE_B, CAS_IN_DBITERR_A, CAS_IN_DBITERR_B,
   CAS_IN_DIN_A, CAS_IN_DIN_B, CAS_IN_DOUT_A, CAS_IN_DOUT_B, CAS_IN_EN_A, CAS_IN_EN_B, CAS_IN_RDACCESS_A,
   CAS_IN_RDACCESS_B, CAS_IN_RDB_WR_A, CAS_IN_RDB_WR_B, CAS_IN_SBITERR_A, CAS_IN_SBITERR_B,
   DOUT_A, DOUT_B, SBITERR_A, SBITERR_B, DBITERR_A, DBITERR_B);
  // How AMD's UltraRAM behaves as hw.uram instantiates it, for simulators; synthesis has the primitive itself. Both
  // ports are enabled, correct errors and have all their registers; port A only reads, SLEEP and RST are low.
  // Source: AMD UG573, chapter UltraRAM, and UG974. The code is that of AMD's simulation library: an extended Hamming
  // code with its data at the positions that are no powers of two.
  input CLK, SLEEP;
  input [22:0] ADDR_A, ADDR_B;
  input EN_A, EN_B, RDB_WR_A, RDB_WR_B;
  input [8:0] BWE_A, BWE_B;
  input [71:0] DIN_A, DIN_B;
  input INJECT_SBITERR_A, INJECT_SBITERR_B, INJECT_DBITERR_A, INJECT_DBITERR_B;
  input OREG_CE_A, OREG_CE_B, OREG_ECC_CE_A, OREG_ECC_CE_B, RST_A, RST_B;
  input [22:0] CAS_IN_ADDR_A, CAS_IN_ADDR_B;
  input [8:0] CAS_IN_BWE_A, CAS_IN_BWE_B;
  input [71:0] CAS_IN_DIN_A, CAS_IN_DIN_B, CAS_IN_DOUT_A, CAS_IN_DOUT_B;
  input CAS_IN_DBITERR_A, CAS_IN_DBITERR_B, CAS_IN_EN_A, CAS_IN_EN_B, CAS_IN_RDACCESS_A, CAS_IN_RDACCESS_B;
  input CAS_IN_RDB_WR_A, CAS_IN_RDB_WR_B, CAS_IN_SBITERR_A, CAS_IN_SBITERR_B;
  output reg [71:0] DOUT_A, DOUT_B;
  output reg SBITERR_A, SBITERR_B, DBITERR_A, DBITERR_B;

  function [6:0] checks;
    input [63:0] data;
    checks = {^(data & 64'hfe00000000000000), ^(data & 64'h01fffffffc000000), ^(data & 64'h01fffe0003fff800),
              ^(data & 64'h01fe01fe03fc07f0), ^(data & 64'hf1e1e1e1e3c3c78e), ^(data & 64'hcd9999999b33366d),
              ^(data & 64'hab55555556aaad5b)};
  endfunction

  function [71:0] encoded;
    input [63:0] data;
    reg [6:0] check;
    begin
      check = checks(data);
      encoded = {^{check, data}, check, data};
    end
  endfunction

  // {double, single, word}: a single error has odd parity and its position as the other checks.
  function [73:0] corrected;
    input [71:0] word;
    reg [6:0] place;
    reg [2:0] log2;
    reg single;
    begin
      place = checks(word[63:0]) ^ word[70:64];
      single = ^word;
      corrected = {|place & ~single, single, word};
      casez (place)
        7'b1??????: log2 = 6;
        7'b01?????: log2 = 5;
        7'b001????: log2 = 4;
        7'b0001???: log2 = 3;
        7'b00001??: log2 = 2;
        7'b000001?: log2 = 1;
        default: log2 = 0;
      endcase
      if (single) begin
        if (place == 0)
          corrected[71] = ~word[71];
        else if ((place & place - 7'd1) == 0)
          corrected[70:64] = word[70:64] ^ (7'd1 << log2);
        else
          corrected[63:0] = word[63:0] ^ (64'd1 << place - log2 - 7'd2);
      end
    end
  endfunction

  reg [71:0] mem [4095:0];
  reg [11:0] address_a, address_b;
  reg write, flip, flips;
  reg [63:0] data;
  reg [71:0] word_a, word_b, held_a, held_b;

  always @(posedge CLK) begin
    address_a <= ADDR_A[11:0];
    address_b <= ADDR_B[11:0];
    write <= RDB_WR_B;
    data <= DIN_B[63:0];
    flip <= INJECT_SBITERR_B;
    flips <= INJECT_DBITERR_B;
    if (write)
      mem[address_b] <= encoded(data) ^ {9'd0, flips, 31'd0, flip | flips, 30'd0};
    else
      word_b <= mem[address_b];
    word_a <= mem[address_a];
    held_a <= word_a;
    held_b <= word_b;
    {DBITERR_A, SBITERR_A, DOUT_A} <= corrected(held_a);
    {DBITERR_B, SBITERR_B, DOUT_B} <= corrected(held_b);
  end
endmodule
