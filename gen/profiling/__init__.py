"""What a click log says of its tables: heat of rows, lengths of bags, what comes together.    Source: SCRec §III.B"""
