"""Optimisers: callable pytrees, whose numbers can be swept, evolved and configured."""

from purerl.optimisers.first_order import SGD as SGD
from purerl.optimisers.first_order import Adam as Adam
from purerl.optimisers.first_order import AdamW as AdamW
from purerl.optimisers.first_order import Lion as Lion
from purerl.optimisers.first_order import RAdam as RAdam
from purerl.optimisers.first_order import RMSProp as RMSProp
from purerl.optimisers.learned import LearnedOptimiser as LearnedOptimiser
from purerl.optimisers.muon import Muon as Muon
from purerl.optimisers.open import OpenOptimiser as OpenOptimiser
from purerl.optimisers.registry import OPTIMISERS as OPTIMISERS
from purerl.optimisers.registry import register as register
