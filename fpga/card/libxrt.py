"""XRT's C API by ctypes: found, declared, and made to say in one sentence what did not work.

Source: xrt_device.h, xrt_bo.h, xrt_kernel.h and ert.h of XRT 2022.1 (2.13).
"""

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

from fpga.card.interface import CardError

LIBRARY = "libxrt_coreutil.so.2"
INSTALLED = Path("/opt/xilinx/xrt")     # where AMD's packages put XRT
# What XRT loads for the mode it works in; without it, it ends the whole process.
SHIMS = {"": "libxrt_core.so.2", "noop": "libxrt_noop.so.2", "hw_emu": "libxrt_hwemu.so.2",
         "sw_emu": "libxrt_swemu.so.2"}
BO_HOST_ONLY, BO_P2P = 1 << 29, 1 << 30
TO_CARD, FROM_CARD = 0, 1
# States of a run that was not started, and of one that is over (ert_cmd_state), as xrtRunState tells them. It tells
# ABORT where it fails itself, too; and xrtRunWaitFor tells TIMEOUT where its own time is over, of a run that goes on.
NEW, COMPLETED = 1, 4
FAILED = {5: "ERROR", 6: "ABORT", 8: "TIMEOUT", 9: "NORESPONSE", 10: "SKERROR", 11: "SKCRASHED"}
_PTR, _INT, _UINT, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_char_p
# Name -> (result, arguments). What returns a number returns 0 when all went well.
_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "xrtDeviceOpen": (_PTR, (_UINT,)),
    "xrtDeviceOpenByBDF": (_PTR, (_TEXT,)),
    "xrtDeviceClose": (_INT, (_PTR,)),
    "xrtDeviceLoadXclbinFile": (_INT, (_PTR, _TEXT)),
    "xrtPLKernelOpenExclusive": (_PTR, (_PTR, _TEXT, _TEXT)),
    "xrtKernelClose": (_INT, (_PTR,)),
    "xrtKernelArgGroupId": (_INT, (_PTR, _INT)),
    "xrtKernelReadRegister": (_INT, (_PTR, ctypes.c_uint32, _PTR)),
    "xrtKernelWriteRegister": (_INT, (_PTR, ctypes.c_uint32, ctypes.c_uint32)),
    "xrtBOAlloc": (_PTR, (_PTR, _SIZE, ctypes.c_uint64, ctypes.c_uint32)),
    "xrtBOFree": (_INT, (_PTR,)),
    "xrtBOAddress": (ctypes.c_uint64, (_PTR,)),
    "xrtBOMap": (_PTR, (_PTR,)),
    "xrtBOSync": (_INT, (_PTR, _INT, _SIZE, _SIZE)),
    "xrtRunOpen": (_PTR, (_PTR,)),
    "xrtRunSetArg": (_INT, (_PTR, _INT)),   # and the value: a buffer's handle, or a number of 32 bits
    "xrtRunStart": (_INT, (_PTR,)),
    "xrtRunWaitFor": (_INT, (_PTR, _UINT)),
    "xrtRunState": (_INT, (_PTR,)),
    "xrtRunClose": (_INT, (_PTR,)),
}


def emulation() -> str:
    """XRT's mode: "" for cards, else "noop", "hw_emu" or "sw_emu"."""
    return os.environ.get("XCL_EMULATION_MODE", "")


def emulates_core() -> bool:
    """Whether XRT's mode has a core that is simulated, slowly, while the host's clock goes on."""
    return emulation() in ("hw_emu", "sw_emu")


def load() -> "Xrt":
    """XRT's library. Raises CardError: it, or what it needs, is not there"""
    mode, root = emulation(), os.environ.get("XILINX_XRT", "")
    if mode not in SHIMS:
        raise CardError(f"XCL_EMULATION_MODE is {mode!r}; XRT knows {', '.join(name for name in SHIMS if name)}")
    if not root and (INSTALLED / "lib").is_dir():
        os.environ["XILINX_XRT"] = root = str(INSTALLED)
    try:
        own = Path(root) / "lib" / LIBRARY
        library = ctypes.CDLL(str(own) if root and own.is_file() else LIBRARY, use_errno=True)
    except OSError as error:
        raise CardError(f"{LIBRARY} cannot be loaded ({error}): install XRT and source its setup.sh") from None
    if not root:
        raise CardError("XILINX_XRT is not set: source XRT's setup.sh (/opt/xilinx/xrt/setup.sh), so that XRT finds "
                        "its own libraries")
    if not (shim := Path(root) / "lib" / SHIMS[mode]).is_file():
        raise CardError(f"XRT's {shim} is not there: XILINX_XRT does not name a whole installation of XRT")
    return Xrt(library)


class Xrt:
    """The calls under their own names; `library` has them as attributes."""

    def __init__(self, library: Any):
        for name, (result, arguments) in _CALLS.items():
            try:
                call = getattr(library, name)
            except AttributeError:
                raise CardError(f"{LIBRARY} has no {name}: XRT 2.11 or later is needed") from None
            call.restype, call.argtypes = result, arguments
            setattr(self, name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def handle(self, name: str, *arguments: Any, what: str) -> Any:
        """A handle. Raises CardError: `what` did not work"""
        handle = getattr(self, name)(*arguments)
        if not handle:
            raise CardError(f"{what}; XRT says why on its error output")
        return handle

    def _code(self, name: str, *arguments: Any) -> int:
        """0, what `errno` calls the failure, or -1 where XRT does not tell. XRT 2.13 answers -1 and sets errno, others
        answer the number itself, of either sign."""
        ctypes.set_errno(0)
        code = abs(getattr(self, name)(*arguments))
        return code if code != 1 else ctypes.get_errno() or -1

    def must(self, name: str, *arguments: Any, what: str) -> None:
        """Raises CardError: `what` did not work"""
        if code := self._code(name, *arguments):
            raise CardError(what + (f": {os.strerror(code)}" if code in errno.errorcode else ""))

    def load_xclbin(self, device: Any, path: Path, where: str) -> None:
        """Raises CardError: the driver refuses it"""
        code = self._code("xrtDeviceLoadXclbinFile", device, os.fsencode(path))
        if code == errno.EOPNOTSUPP:
            raise CardError(f"wrong shell: {path} was linked for another one than {where} has")
        if code == errno.EBUSY:
            raise CardError(f"{path} cannot be loaded: another process uses {where}")
        if code:
            raise CardError(f"{path} cannot be loaded on {where}"
                            + (f": {os.strerror(code)}" if code in errno.errorcode else "")
                            + "; XRT says why on its error output")
