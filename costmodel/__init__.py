"""What a model costs on a device: pure functions of a model, a run and a GPU; no I/O, no torch."""
