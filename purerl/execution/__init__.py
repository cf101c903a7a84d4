"""Compiled training programs on the host: members, cohorts, what is kept of them."""
