# hotrail_emb has no parameters.
proc init_gui { IPINST } {
    ipgui::add_param $IPINST -name "Component_Name"
    ipgui::add_page $IPINST -name "Page 0"
}
