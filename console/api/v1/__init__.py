"""Version 1 of the API: one module per area, one operation per page action."""
