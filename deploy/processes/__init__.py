"""The processes of an appliance: commands, supervision, logs and systemd units."""
