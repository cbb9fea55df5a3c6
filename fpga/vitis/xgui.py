"""The form that Vivado shows for the IP: a kernel has nothing to choose, so it is one empty page."""

from fpga.vitis.description import RtlKernel


def xgui_path(kernel: RtlKernel) -> str:
    """Where the form lies in the IP's folder."""
    return f"xgui/{kernel.name}_v{kernel.version.replace('.', '_')}.tcl"


def xgui(kernel: RtlKernel) -> str:
    """The form's Tcl."""
    return (f"# {kernel.name} has no parameters.\n"
            "proc init_gui { IPINST } {\n"
            '    ipgui::add_param $IPINST -name "Component_Name"\n'
            '    ipgui::add_page $IPINST -name "Page 0"\n'
            "}\n")
