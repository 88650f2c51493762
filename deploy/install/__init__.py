"""The virtual environment at the checkout's root: requirements, locks, installer.

Standard library only: it runs before anything is installed.
"""
