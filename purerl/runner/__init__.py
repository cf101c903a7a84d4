"""Around the compiled program: time, disk and terminal; no reinforcement learning."""
