"""How a person wants the pages: time zone, density, theme, favourites, saved views."""
