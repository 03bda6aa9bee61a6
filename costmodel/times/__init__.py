"""How long kernels take: a formula for each family of them, and which constants hold on a GPU."""
