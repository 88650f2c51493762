"""The commands: one module for each file in deploy/, and the steps that they share."""
