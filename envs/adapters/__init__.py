"""Adapters: the only modules that import the packages they are named after."""
