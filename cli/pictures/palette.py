"""Colours by tone, for light and for dark paper. Words in any of them can be read."""

from __future__ import annotations

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1f24",
    "muted": "#57606a",
    "grid": "#e4e7eb",
    "onbar": "#ffffff",
    "s0": "#1f6fb2",
    "s1": "#b4530a",
    "s2": "#1e7a50",
    "s3": "#7d3fbf",
    "s4": "#a8326b",
    "s5": "#6b6410",
}
DARK = {
    "paper": "#14171b",
    "ink": "#e8eaed",
    "muted": "#a3abb5",
    "grid": "#2b3138",
    "onbar": "#14171b",
    "s0": "#6db3f2",
    "s1": "#f2a35e",
    "s2": "#5fcf9a",
    "s3": "#c39bf5",
    "s4": "#f08bb8",
    "s5": "#d6cd5a",
}
