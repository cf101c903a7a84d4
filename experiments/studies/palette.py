"""The colours of the studies' pictures: what is the same has the same colour in all."""

from purerl.report.plots import style

# By whom an agent is trained.
STACKS = {
    "purerl": style.COLOURS[0],
    "PyTorch": style.COLOURS[1],
    "Flax": style.COLOURS[2],
    "brax": style.COLOURS[3],
}
# In pictures whose agents are all purerl's, or whose stacks have marks of their own.
ALGORITHMS = {
    "VPG": style.COLOURS[3],
    "TD3": style.COLOURS[0],
    "SAC": style.COLOURS[1],
    "MPO": style.COLOURS[2],
}
