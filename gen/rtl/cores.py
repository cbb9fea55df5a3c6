"""The cores that a preset can describe: the table's name, its configuration and the unit that it builds."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Core:
    """A core by the names of its classes, which are imported when asked for: a preset loads quickly."""

    about: str
    _config: str
    _unit: str

    @property
    def config(self) -> type:
        return _find(self._config)

    def unit(self, config: Any) -> Any:
        """The component that `config` describes."""
        return _find(self._unit)(config)

    @property
    def is_kernel(self) -> bool:
        """Whether it can be linked into an FPGA's image by itself."""
        return getattr(_find(self._unit), "kernel", None) is not None

    def kernel(self, config: Any) -> Any:
        """The core as the top of a Vitis kernel. Raises TypeError: it is not one."""
        return _find("hw.kernel.top:VitisKernel")(self.unit(config))


def _find(name: str) -> Any:
    module, _, item = name.partition(":")
    return getattr(import_module(module), item)


CORES = {
    "emb": Core(
        "EMB core: embedding bags pooled from DRAM, tensor trains and the SSD; a Vitis kernel",
        "hw.emb.config:EmbConfig",
        "hw.emb.core:EmbCore",
    ),
    "mlp": Core(
        "MLP core: fully connected networks and feature interactions; a Vitis kernel",
        "hw.mlp.config:MlpConfig",
        "hw.mlp.core:MlpCore",
    ),
    "hotline": Core(
        "Hotline core: learns which rows are hot, dispatches mini-batches, gathers cold rows; a Vitis kernel",
        "hw.hotline.config:HotlineConfig",
        "hw.hotline.core:HotlineCore",
    ),
    "tt": Core(
        "TT computation unit: rows of tensor-train tables at one pass of the array each",
        "hw.tt.config:TTConfig",
        "hw.tt.unit:TTUnit",
    ),
    "serial": Core(
        "SCRec's own TT unit, one product after the other: the baseline of every figure",
        "hw.tt.serial_config:SerialConfig",
        "hw.tt.serial:SerialTTUnit",
    ),
}
