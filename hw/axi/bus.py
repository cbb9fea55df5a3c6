"""AXI4 and AXI4-Lite as signatures, and what requests and data look like to the units behind the masters."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

PAGE_BYTES = 4096  # no burst may cross a multiple of it (AXI4)
ID_BITS = 1  # Vitis masters; every transfer has ID 0

def _address(id_bits: int) -> dict[str, int]:
    return {"addr": 64, "id": id_bits, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3, "qos": 4,
            "region": 4}


INCR = 1
# Normal, non-cacheable, bufferable and modifiable: what Vitis' own masters say.
CACHE = 0b0011


def _channel(prefix: str, fields: dict[str, int], flow, back) -> dict[str, wiring.Member]:
    return {
        f"{prefix}valid": flow(1), f"{prefix}ready": back(1),
        **{f"{prefix}{name}": flow(bits) for name, bits in fields.items()},
    }


def READ(data_bits: int, id_bits: int = ID_BITS) -> dict[str, wiring.Member]:
    """The members of the two read channels, seen from the master."""
    return {
        **_channel("ar", _address(id_bits), Out, In),
        **_channel("r", {"id": id_bits, "data": data_bits, "resp": 2, "last": 1}, In, Out),
    }


def WRITE(data_bits: int, id_bits: int = ID_BITS) -> dict[str, wiring.Member]:
    """The members of the three write channels, seen from the master."""
    return {
        **_channel("aw", _address(id_bits), Out, In),
        **_channel("w", {"data": data_bits, "strb": data_bits // 8, "last": 1}, Out, In),
        **_channel("b", {"id": id_bits, "resp": 2}, In, Out),
    }


class AXI4(wiring.Signature):
    """A full AXI4 port with 64-bit addresses, seen from the master.

    Parameters  data_bits: width of the data; reads, writes: which channels there are; id_bits: 1 for a Vitis master
    Members     awvalid, awready, awaddr, awid, awlen, ...: flat names in lower case, so that a member `m00_axi` of a
                component comes out as `m00_axi__awaddr`
    Raises      ValueError: data_bits is not a power of two from 32 to 512
    """

    def __init__(self, data_bits: int, *, reads: bool = True, writes: bool = True, id_bits: int = ID_BITS):
        check_beat_bytes(data_bits // 8 if type(data_bits) is int and data_bits % 8 == 0 else data_bits)
        self.data_bits, self.reads, self.writes, self.id_bits = data_bits, reads, writes, id_bits
        super().__init__({**(WRITE(data_bits, id_bits) if writes else {}),
                          **(READ(data_bits, id_bits) if reads else {})})

    def __repr__(self) -> str:
        return f"AXI4({self.data_bits}, reads={self.reads}, writes={self.writes}, id_bits={self.id_bits})"


class AXI4Lite(wiring.Signature):
    """An AXI4-Lite port of 32 data bits, seen from the master.

    Parameters  address_bits: 12 for the 4 KB that a Vitis kernel's control registers have
    """

    def __init__(self, address_bits: int = 12):
        self.address_bits = address_bits
        super().__init__({
            **_channel("aw", {"addr": address_bits}, Out, In),
            **_channel("w", {"data": 32, "strb": 4}, Out, In),
            **_channel("b", {"resp": 2}, In, Out),
            **_channel("ar", {"addr": address_bits}, Out, In),
            **_channel("r", {"data": 32, "resp": 2}, In, Out),
        })

    def __repr__(self) -> str:
        return f"AXI4Lite({self.address_bits})"


def check_beat_bytes(beat_bytes: int) -> None:
    """Raises ValueError unless it is a width that a Vitis master may have."""
    if type(beat_bytes) is not int or beat_bytes not in (4, 8, 16, 32, 64):
        raise ValueError(f"beat_bytes must be one of 4, 8, 16, 32, 64 (32 to 512 bits), not {beat_bytes!r}")


def block_beats(beat_bytes: int) -> int:
    """Beats of the largest burst; bursts end at its multiples, which keeps them inside a page and 256 beats."""
    return min(PAGE_BYTES // beat_bytes, 256)


def request_layout() -> data.StructLayout:
    """A run of whole beats. address: in bytes, a multiple of the beat's; beats: 1 to 65,535."""
    return data.StructLayout({"address": 64, "beats": 16})


def read_layout(beat_bytes: int) -> data.StructLayout:
    """A beat that was read. error: it cannot be trusted; last: the request's last."""
    return data.StructLayout({"data": 8 * beat_bytes, "error": 1, "last": 1})


def data_layout(beat_bytes: int) -> data.StructLayout:
    """A beat to write."""
    return data.StructLayout({"data": 8 * beat_bytes})


def address_constants(prefix: str, bus, beat_bytes: int) -> list:
    """Assignments of what every burst of every master has in common: INCR, full width, ID 0."""
    fixed = {"id": 0, "size": (beat_bytes - 1).bit_length(), "burst": INCR, "lock": 0, "cache": CACHE, "prot": 0,
             "qos": 0, "region": 0}
    return [getattr(bus, prefix + name).eq(value) for name, value in fixed.items()]


def attach(m: Module, port, *, reader=None, writer=None) -> None:
    """Wires an engine's read and write channels to a full port; channels without an engine are quiet.

    Parameters  port: an AXI4 interface that the component drives; reader, writer: `bus` of the engines, or None
    """
    for members, engine in ((READ(port.rdata.shape().width), reader), (WRITE(port.wdata.shape().width), writer)):
        for name, member in members.items():
            if engine is None:
                if member.flow == Out:
                    m.d.comb += getattr(port, name).eq(0)
            elif member.flow == Out:
                m.d.comb += getattr(port, name).eq(getattr(engine, name))
            else:
                m.d.comb += getattr(engine, name).eq(getattr(port, name))
