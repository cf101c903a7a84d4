"""Plain PyTorch agents on the host: what the studies compare purerl with.

Each file is one algorithm with the settings of its preset here, and nothing of purerl;
PPO is given its settings as one of purerl's configs.
"""
