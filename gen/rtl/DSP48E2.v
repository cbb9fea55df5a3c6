module DSP48E2 #(
  parameter A_INPUT = "DIRECT",
  parameter integer AREG = 1, ACASCREG = 1, BREG = 1, BCASCREG = 1, CREG = 1, DREG = 1, ADREG = 1, MREG = 1, PREG = 1,
  parameter integer INMODEREG = 1, OPMODEREG = 1, ALUMODEREG = 1, CARRYINREG = 1, CARRYINSELREG = 1
) (CLK, A, ACIN, B, BCIN, C, D, PCIN, CARRYCASCIN, CARRYIN, MULTSIGNIN, OPMODE, ALUMODE, INMODE, CARRYINSEL,
   CEA1, CEA2, CEAD, CEALUMODE, CEB1, CEB2, CEC, CECARRYIN, CECTRL, CED, CEINMODE, CEM, CEP,
   RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP, P, ACOUT, PCOUT);
  // How AMD's DSP slice behaves as hw.fp.slices instantiates it, for simulators; synthesis has the primitive itself.
  // P = A * B + Z + W, Z = 0, C, PCIN or PCIN >>> 17 and W = 0 or C by OPMODE; registers M and P, those of A, B and C by their attributes, as
  // many at ACOUT as at A. All clock enables of registers that are there are high, and of the resets only RSTP is used.
  // Source: AMD UG579, UG974.
  input CLK;
  input [29:0] A, ACIN;
  input [17:0] B, BCIN;
  input [47:0] C, PCIN;
  input [26:0] D;
  input CARRYCASCIN, CARRYIN, MULTSIGNIN;
  input [8:0] OPMODE;
  input [3:0] ALUMODE;
  input [4:0] INMODE;
  input [2:0] CARRYINSEL;
  input CEA1, CEA2, CEAD, CEALUMODE, CEB1, CEB2, CEC, CECARRYIN, CECTRL, CED, CEINMODE, CEM, CEP;
  input RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP;
  output [47:0] P, PCOUT;
  output [29:0] ACOUT;

  wire [29:0] a0 = A_INPUT == "CASCADE" ? ACIN : A;
  reg [29:0] a1, a2;
  reg [17:0] b1, b2;
  reg [47:0] c1;
  wire [29:0] a = AREG == 0 ? a0 : a2;
  wire [17:0] b = BREG == 0 ? B : b2;
  wire [47:0] c = CREG == 0 ? C : c1;
  reg signed [44:0] m;
  reg signed [47:0] p;
  wire signed [47:0] below = $signed(PCIN) >>> 17;
  wire signed [47:0] z = OPMODE[6:4] == 3'b101 ? below : OPMODE[6:4] == 3'b001 ? $signed(PCIN) :
                         OPMODE[6:4] == 3'b011 ? $signed(c) : 48'sd0;
  wire signed [47:0] w = OPMODE[8:7] == 2'b11 ? $signed(c) : 48'sd0;

  always @(posedge CLK) begin
    a1 <= a0;
    a2 <= AREG == 2 ? a1 : a0;
    b1 <= B;
    b2 <= BREG == 2 ? b1 : B;
    c1 <= C;
    m <= $signed(a[26:0]) * $signed(b);
    if (RSTP)
      p <= 48'd0;
    else
      p <= m + z + w;
  end

  assign P = p;
  assign PCOUT = p;
  assign ACOUT = a;
endmodule
