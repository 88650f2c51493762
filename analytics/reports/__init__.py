"""One module a report: its inputs, its transforms, its output schema."""
