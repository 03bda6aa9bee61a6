"""Pictures: a chart in the units of its data, laid out once, drawn as SVG, as PNG and in the terminal."""
