"""What models are: layers, tensors, caches, number formats, and the sheets that state them."""
