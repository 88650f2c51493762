"""The web server of the console: uvicorn with limits for strangers."""
