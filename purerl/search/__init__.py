"""Searches: what is trained next depends on what was found before.

`protocol`: a search as two pure functions, and what passes between them and training.
`drive`: asks, trains and tells until the search has ended, with a folder (`folder`),
progress, Ctrl-C and trackers.
"""
