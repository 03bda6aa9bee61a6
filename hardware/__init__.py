"""What accelerators are: peaks, capacities, links, prices, and the sheets that state them."""
