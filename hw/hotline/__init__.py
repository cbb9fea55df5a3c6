"""The Hotline accelerator: learns which rows are hot, deals popular mini-batches, gathers the rows of the others."""
