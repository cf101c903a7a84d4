"""Searches: what is trained next depends on what was found before.

`protocol`: a search as two pure functions, what passes between them and training, and
its folder. `drive`: asks, trains and tells until the search has ended, with progress,
Ctrl-C and trackers. `fitness`: the kinds of scores by which members are compared.
"""
