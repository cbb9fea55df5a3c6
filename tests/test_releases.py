"""What others build from a clone: workflows and the image call what is there, and all that names the version agrees."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.test_documents import checked

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(path):
    told = yaml.safe_load(path.read_text("utf-8"))
    return [step for job in told["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_what_is_there(path):
    runs = [step["run"] for step in steps(path) if "run" in step]
    assert ".ci/run" in runs, "every push and every release is checked as a clone is"
    for command in runs:
        program, *_ = words = shlex.split(command)
        assert program in ("make", "sudo") or (ROOT / program).stat().st_mode & 0o111, command
        if program == "make":
            checked(" ".join(word for word in words if not word.startswith("PYTHON=")))
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[\w./]+", step["uses"]) for step in steps(path) if "uses" in step)


def test_pythons_of_the_workflow_are_those_of_the_project():
    told = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text("utf-8"))
    tried = told["jobs"]["install"]["strategy"]["matrix"]["python"]
    lowest = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert lowest == f">={tried[0]}" and f"Python {tried[0]} to {tried[-1]}" in page


@pytest.mark.parametrize(("tag", "changes", "message"), [
    (f"v{VERSION}", {}, ""),
    (VERSION, {}, f"the tag must be v{VERSION}"),
    ("", {}, f"the tag must be v{VERSION}"),
    (f"v{VERSION}", {"CITATION.cff": "version: 0.0.7\n"}, "CITATION.cff says 0.0.7"),
    (f"v{VERSION}", {"CHANGELOG.md": f"# Changelog\n\n## {VERSION} (not released)\n"}, "(not released)', not with"),
])
def test_a_tag_is_the_version_of_all_files(tag, changes, message, tmp_path):
    (tmp_path / ".ci").mkdir()
    for name in (".ci/version", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path / name)
    given = {"CITATION.cff": f"version: {VERSION}\n", "CHANGELOG.md": f"# Changelog\n\n## {VERSION}\n", **changes}
    for name, text in given.items():
        (tmp_path / name).write_text(text, "utf-8")
    done = subprocess.run([tmp_path / ".ci/version", tag], capture_output=True, text=True)
    assert (message in done.stderr and done.returncode == 1) if message else (done.returncode, done.stderr) == (0, "")


def test_the_image_is_made_of_what_is_there():
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", "")
    bases = re.findall(r"^FROM (\S+)", text, re.M)
    assert len(set(bases)) == 1 and re.fullmatch(r"python:3\.\d+-slim-\w+", bases[0])
    for name in re.findall(r"/source/(\S+)", text):
        assert (ROOT / name).is_file(), name
    copied = set((ROOT / ".dockerignore").read_text("utf-8").split())
    assert not copied & {"pyproject.toml", "README.md", "LICENSE", "requirements.lock", "hotrail", "gen", "fpga"}
