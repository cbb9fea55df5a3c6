"""Tables as tensor trains: shapes and ranks, decomposition, training.    Source: SCRec §II.B, EL-Rec §III"""
