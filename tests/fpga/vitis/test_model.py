"""The C model in a package: the kernel's C++ of the same configuration, given to package_xo."""

import re

import pytest

from fpga.vitis.flow import contents
from fpga.vitis.link import link_cfg
from fpga.vitis.model import model
from fpga.vitis.scripts import package_tcl
from gen.hls.project import BENCH, sources
from gen.rtl.config import load
from tests.support.vitis_kernels import prepared

GIVEN = r"package_xo (?:[^\n]*\\\n)*[^\n]*-kernel_files \[list((?:[^\n]*\\\n)*[^\n]*)\]\n"


def test_the_emb_core_has_a_model():
    kernel, texts = prepared("emb")
    found = model(kernel)
    assert found == {f"model/{name}": data for name, data in sources({"emb": load("tiny").cores["emb"]}).items()
                     if name not in BENCH}
    assert found.items() <= contents(kernel, texts, link_cfg(kernel, 1)).items()
    given = re.search(GIVEN, package_tcl(kernel))
    assert given and re.findall(r"\[file join \$here (\S+)\]", given[1]) == sorted(found)


@pytest.mark.parametrize("core", ["mlp", "hotline"])
def test_others_have_none(core):
    kernel, _ = prepared(core)
    assert model(kernel) == {} and "kernel_files" not in package_tcl(kernel)
