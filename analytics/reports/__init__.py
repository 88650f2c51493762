"""One module per report: its inputs, its transforms, its output schema."""
