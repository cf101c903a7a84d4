"""Memories that are modules of their own, and all kinds of memory by name."""

from purerl.networks.memories.kinds import NAMES as NAMES
from purerl.networks.memories.kinds import Kind as Kind
from purerl.networks.memories.kinds import kind_of as kind_of
from purerl.networks.memories.linear import LRU as LRU
from purerl.networks.memories.linear import S5 as S5
from purerl.networks.memories.transformer import Transformer as Transformer
