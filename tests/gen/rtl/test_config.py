"""Presets: what is right is read, and everything wrong is told in one sentence with file, key and value."""

from dataclasses import FrozenInstanceError, dataclass, fields

import pytest

from gen.rtl import config
from gen.rtl.cores import CORES
from hw.config import Config, choice, flag, whole


@dataclass(frozen=True, kw_only=True)
class Inner(Config):
    depth: int = whole(1, 8, "words")


@dataclass(frozen=True, kw_only=True)
class Example(Config):
    lanes: int = whole(1, 64, "lanes", power_of_two=True)
    style: str = choice("block", "ultra", about="memory")
    fast: bool = flag("fast")
    modes: tuple[int, ...] = ()
    inner: Inner = Inner(depth=1)

    def check(self):
        if self.fast and self.lanes > 32:
            raise ValueError(f"lanes must be at most 32 when fast is true, not {self.lanes}")


GOOD = """about = "An example."
[unit]
lanes = 4
style = "ultra"
fast = true
modes = [2, 3]
[unit.inner]
depth = 8
"""


def read(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text, "utf-8")
    return config.load(path, {"unit": Example})


def test_good_preset(tmp_path):
    preset = read(tmp_path, GOOD)
    assert preset.name == "mine" and preset.about == "An example."
    assert preset.cores["unit"] == Example(lanes=4, style="ultra", fast=True, modes=(2, 3), inner=Inner(depth=8))
    with pytest.raises(FrozenInstanceError):
        preset.cores["unit"].lanes = 8


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("lanes = 4\n", "", "mine.toml: [unit] lanes: missing key; it must be set to a power of two from 1 to 64"),
        ("modes = [2, 3]\n", "",
         "mine.toml: [unit] modes: missing key; it must be set to a list of which every item is a whole number"),
        ("lanes = 4", "lanse = 4",
         "mine.toml: [unit] lanse = 4: unknown key (meant lanes?); allowed are lanes, style, fast, modes, inner"),
        ("lanes = 4", "lanes = 3",
         "mine.toml: [unit] lanes = 3: lanes must be a power of two from 1 to 64, not 3"),
        ("lanes = 4", "lanes = 0",
         "mine.toml: [unit] lanes = 0: lanes must be a power of two from 1 to 64, not 0"),
        ("lanes = 4", "lanes = true", "mine.toml: [unit] lanes = True: must be a whole number"),
        ("lanes = 4", "lanes = 4.0", "mine.toml: [unit] lanes = 4.0: must be a whole number"),
        ("lanes = 4", 'lanes = "4"', "mine.toml: [unit] lanes = '4': must be a whole number"),
        ("lanes = 4", "lanes = 64",
         "mine.toml: [unit] lanes = 64: lanes must be at most 32 when fast is true, not 64"),
        ('style = "ultra"', 'style = "hyper"',
         "mine.toml: [unit] style = 'hyper': style must be one of 'block', 'ultra', not 'hyper'"),
        ("fast = true", "fast = 1", "mine.toml: [unit] fast = 1: must be true or false"),
        ("modes = [2, 3]", "modes = 2",
         "mine.toml: [unit] modes = 2: must be a list of which every item is a whole number"),
        ("modes = [2, 3]", "modes = [2, 'x']", "mine.toml: [unit] modes[1] = 'x': must be a whole number"),
        ("depth = 8", "depth = 9",
         "mine.toml: [unit] inner depth = 9: depth must be a whole number from 1 to 8, not 9"),
        ("[unit.inner]\ndepth = 8", "inner = 8", "mine.toml: [unit] inner = 8: must be a table"),
        ("[unit]", "[unti]", "mine.toml: [unti]: unknown table (meant unit?); allowed are unit"),
        ('about = "An example."\n', "",
         "mine.toml: about = None: must be a sentence that says what the preset is for"),
    ],
)
def test_wrong_preset(tmp_path, old, new, message):
    assert old in GOOD
    text = GOOD.replace(old, new).replace("[unti.inner]", "")
    with pytest.raises(config.ConfigError) as error:
        read(tmp_path, text)
    assert str(error.value) == message


def test_not_toml(tmp_path):
    with pytest.raises(config.ConfigError, match=r"mine\.toml: not valid TOML: .*"):
        read(tmp_path, 'about = "x"\n[unit')


@pytest.mark.parametrize("key", [
    ".".join(["lanes"] * 9), " . ".join(['"a b"', "'c'", "d-e"] * 300), "positions." * 100_000 + "x",
])
def test_keys_of_many_parts_are_refused_before_they_are_parsed(tmp_path, key):
    for line in (f"{key} = 1", f"[{key}]", f"x = {{ {key} = 1 }}"):
        with pytest.raises(config.ConfigError, match=r"^mine\.toml: line 2: a key has more than 8 parts$"):
            read(tmp_path, f'about = "An example."\n{line}\n')
    with pytest.raises(config.ConfigError, match=r"lanes = \{.*\}: must be a whole number"):
        read(tmp_path, GOOD.replace("lanes = 4", "lanes.a.b.c.d.e.f.g = 1 # and . so . on"))


def test_files_that_are_too_large_are_not_read(tmp_path):
    with pytest.raises(config.ConfigError, match=r"^mine\.toml: has [\d,]+ bytes; a preset has 2,097,152 at most$"):
        read(tmp_path, GOOD + "#" * (1 << 21))


def test_no_core(tmp_path):
    with pytest.raises(config.ConfigError) as error:
        read(tmp_path, 'about = "x"\n')
    assert str(error.value) == "mine.toml: describes no core; add one of the tables [unit]"


def test_unknown_name():
    with pytest.raises(config.ConfigError) as error:
        config.load("tinny")
    assert str(error.value) == (
        f"there is no preset 'tinny'; there are {', '.join(config.names())}, or give the path of a .toml file")
    with pytest.raises(config.ConfigError, match=r"^there is no file presets/mine\.toml with a preset$"):
        config.load("presets/mine.toml")


def test_shipped_presets():
    assert set(config.names()) >= {"tiny", "smartssd", "screc"}
    for name in config.names():
        preset = config.load(name)
        assert preset.cores and preset.about.endswith(".")


@pytest.mark.parametrize("name", CORES)
def test_every_key_says_what_it_is(name):
    """The reference tables and the messages above are made from these."""
    for item in fields(CORES[name].config):
        assert item.metadata.get("about"), f"{name}.{item.name} does not say what it is"
        assert item.metadata.get("allowed"), f"{name}.{item.name} does not say what is allowed"
