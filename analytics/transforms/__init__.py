"""DataFrame to DataFrame steps, each with the schemas of both ends written down."""
