"""What `infercost explain` knows: one function a topic, found by its name in the index."""
