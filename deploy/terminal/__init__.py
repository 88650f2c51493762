"""The terminal: lines of output, their translation, help texts.

Standard library only: the first lines are printed before anything is installed.
"""
