"""The console's web server: uvicorn with limits for anonymous clients."""
