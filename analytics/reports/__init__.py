"""One module per report: its inputs, transforms and output schema."""
