"""Alerts: rules over verdicts and history that tell people, by webhook and e-mail."""
