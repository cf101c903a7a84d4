"""Derivatives of what an agent becomes, and numbers that are tuned with them online."""
