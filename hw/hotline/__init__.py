"""The Hotline accelerator: learns which rows are hot, dispatches popular mini-batches, gathers the rows of others."""
