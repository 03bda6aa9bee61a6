"""Families of HuggingFace configurations: which keys say what, and what their classes imply."""
