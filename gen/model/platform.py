"""Platforms: what kernels are linked for, read from the same TOML files as devices (gen/model/devices): one file is all
that the project knows of a board.

    found = Platform.load("u55c")                       # a name, or the path of a file of one's own
    found, shell = find("xilinx_u55c_gen3x16_xdma_3_202210_1")
    found.tag(3)                                        # "HBM[3]": the sptag of the fourth channel
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gen.model.device import FOLDER, Device
from gen.rtl import config
from gen.rtl.config import ConfigError

RESOURCES = {"lut": "LUT", "ff": "FF", "bram36": "BRAM36", "uram": "URAM", "dsp": "DSP"}
DEFAULT = "smartssd"


@dataclass(frozen=True)
class Budget:
    """What a shell leaves, by resource; `missing` says why there are no numbers. `platform`: its name for AMD's tools,
    none for the bare chip and for a shell that Vitis does not link for."""

    name: str
    about: str
    resources: Mapping[str, int]
    source: str = ""
    missing: str = ""
    platform: str = ""


@dataclass(frozen=True)
class Sites:
    """Of the user region, and how many of them the platform's own logic takes."""

    there: int
    platform: float


@dataclass(frozen=True)
class _Board:
    """The keys of a table [platform] that are no tables themselves."""

    about: str
    part: str
    memory_tag: str
    other_tags: tuple[str, ...]
    masters_max: int
    slrs: int
    clocks_mhz: tuple[int, ...]
    vitis: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Platform(_Board):
    """A board as kernels see it.

    memory_tag: sptag of the memory that tables lie in, {} for the number of a channel; channels: of it; other_tags:
    that a master could be connected to as well. masters_max: AXI masters of all instances. slrs: super logic regions.
    clocks_mhz: the default first. vitis: first and last version that know it, empty where Vitis does not link for it.
    shells: the default first, then others, the bare chip last. sites: of those resources that are known. region: the
    user region as a grid of slices and the columns of larger blocks in it, empty where they are not known. path: of its
    file, None of those that come with hotrail.
    """

    name: str
    channels: int
    shells: Mapping[str, Budget]
    sites: Mapping[str, Sites]
    region: Mapping[str, Any]
    path: Path | None = None

    @staticmethod
    def load(platform: "str | Path | Platform" = DEFAULT) -> "Platform":
        """A platform by its name, or from a path that ends in .toml.

        Raises ConfigError: the file, a table or a key is missing, unknown or impossible."""
        if isinstance(platform, Platform):
            return platform
        name = str(platform)
        return _read(name) if name.endswith(".toml") else _kept(name)

    @property
    def shell(self) -> Budget:
        """The default one."""
        return next(iter(self.shells.values()))

    @property
    def budgeted(self) -> Budget:
        """The first shell, or the bare chip, of which there are numbers."""
        return next(shell for shell in self.shells.values() if not shell.missing)

    def tag(self, channel: int) -> str:
        """The sptag of a channel of the memory; from the last on they begin anew."""
        return self.memory_tag.format(channel % self.channels)


@dataclass(frozen=True)
class _Shell:
    about: str
    platform: str = ""
    source: str = ""
    missing: str = ""
    lut: int = 0
    ff: int = 0
    bram36: int = 0
    uram: int = 0
    dsp: int = 0


@cache
def _kept(name: str) -> Platform:
    return _read(name)


def _read(name: str) -> Platform:
    path, table = config.read("device", name, FOLDER)
    where, device = f"{path.name}: [platform]", path if name.endswith(".toml") else name
    if "platform" not in table and "like" in table:      # a variant of a device, on its board
        found = replace(Platform.load(table["like"]), channels=Device.load(device).memory.channels)
        _check(found, where)
        return found
    if not isinstance(table.get("platform"), dict):
        raise ConfigError(f"{path.name}: has no table [platform], so nothing is linked for it; docs/boards.md says "
                          "what belongs in it")
    told = dict(table["platform"])
    shells, sites, region = (told.pop(key, {}) for key in ("shells", "sites", "region"))
    for key, value in (("shells", shells), ("sites", sites), ("region", region)):
        if not isinstance(value, dict):
            raise ConfigError(f"{where} {key} = {value!r}: must be a table")
    board: _Board = config.build(_Board, told, where)
    found = Platform(
        **vars(board), name=path.stem, channels=Device.load(device).memory.channels,
        shells={key: _budget(key, value, f"{where} shells.{key}") for key, value in shells.items()},
        sites={key: config.build(Sites, value, f"{where} sites.{key}") for key, value in sites.items()
               if key != "source"},
        region=region, path=path.resolve() if name.endswith(".toml") else None)
    _check(found, where)
    return found


def _budget(name: str, table: Any, where: str) -> Budget:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} = {table!r}: must be a table")
    rest = {key: item.default for key, item in _Shell.__dataclass_fields__.items() if key != "about"}
    found: _Shell = config.build(_Shell, {**rest, **table}, where)
    absent = [key for key in RESOURCES if key not in table]
    if absent and not found.missing:
        raise ConfigError(f"{where} {absent[0]}: missing key; a shell has numbers for {', '.join(RESOURCES)}, or says "
                          "in `missing` why there are none")
    return Budget(name, found.about, {key: table[key] for key in RESOURCES if key in table}, found.source,
                  found.missing, found.platform)


def _check(found: Platform, where: str) -> None:
    for name in ("masters_max", "slrs"):
        if getattr(found, name) < 1:
            raise ConfigError(f"{where} {name} = {getattr(found, name)}: must be above 0")
    if not found.clocks_mhz or min(found.clocks_mhz) < 1:
        raise ConfigError(f"{where} clocks_mhz = {list(found.clocks_mhz)}: must be one or more clocks above 0")
    if len(found.vitis) not in (0, 2):
        raise ConfigError(f"{where} vitis = {list(found.vitis)}: must be the first and the last version, or empty")
    if all(shell.missing for shell in found.shells.values()):
        raise ConfigError(f"{where} shells: must have numbers of a shell or of the chip, one at least")
    if found.vitis and not found.shell.platform:
        raise ConfigError(f"{where} shells.{found.shell.name}: must name AMD's platform, or vitis be empty")
    for shell in found.shells.values():
        for key, value in shell.resources.items():
            if value < 0:
                raise ConfigError(f"{where} shells.{shell.name} {key} = {value}: must not be negative")
    try:
        tags = {found.memory_tag.format(number) for number in range(found.channels)}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        tags = set()
    if len(tags) != found.channels:
        raise ConfigError(f"{where} memory_tag = {found.memory_tag!r}: must have {{}} for the number of each of the "
                          f"memory's {found.channels} channels")


@cache
def names() -> tuple[str, ...]:
    """The platforms that come with hotrail, the default first."""
    own = [name for name in config.stems(FOLDER) if "platform" in config.read("device", name, FOLDER)[1]]
    return (DEFAULT, *(name for name in own if name != DEFAULT))


def find(platform: "str | Platform" = "") -> tuple[Platform, Budget]:
    """A platform and one of its shells: by the name that AMD's tools have for it, or the path of its .xpfm; by the name
    of a board or the path of a file of one's own, whose first shell is taken; the default where none is named.

    Raises ValueError: there is no such platform; ConfigError: the file"""
    if isinstance(platform, Platform) or not platform or platform in names() or platform.endswith(".toml"):
        found = Platform.load(platform or DEFAULT)
        return found, found.shell
    name = Path(platform).stem if platform.endswith(".xpfm") else platform
    known = {shell.platform: (board, shell) for board in map(Platform.load, names())
             for shell in board.shells.values() if shell.platform}
    if name not in known:
        there = ", ".join(f"{name} ({board.about}, {shell.about})" for name, (board, shell) in known.items())
        raise ValueError(f"platform must be one of {', '.join(names())}, the path of a board's .toml, or one of AMD's "
                         f"platforms {there}, not {platform!r}")
    return known[name]


def region() -> Mapping[str, Any]:
    """Of the default platform."""
    return Platform.load().region
