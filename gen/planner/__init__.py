"""The planner: which rows of which tables lie where, and which cards run what.  Source: SCRec §III.C, eq. 3 to 37."""
