"""What is shown: options in, tables, JSON, CSV, Markdown and pictures out."""
