"""What a live device measures, held to the cost model's prediction of the same operation."""
