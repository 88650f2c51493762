"""Verdicts: rules that check the history for problems, with causes and next steps."""
