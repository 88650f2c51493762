"""The machine: Debian packages, Java, Redis, fonts, ports and the data directory."""
