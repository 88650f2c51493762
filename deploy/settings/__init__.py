"""The command line and environment of deploy/up.

Standard library only: `deploy/up --help` must work before anything is installed.
"""
