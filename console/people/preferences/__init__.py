"""Personal settings: time zone, density, theme, favourites, saved views."""
