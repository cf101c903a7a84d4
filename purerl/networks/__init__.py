"""Networks in flax.linen: torsos, actors, critics; distributions; a memory."""

from purerl.networks.actors import CategoricalActor as CategoricalActor
from purerl.networks.actors import GaussianActor as GaussianActor
from purerl.networks.actors import StateGaussianActor as StateGaussianActor
from purerl.networks.actors import TanhActor as TanhActor
from purerl.networks.critics import ActionCritic as ActionCritic
from purerl.networks.critics import Critic as Critic
from purerl.networks.critics import DiscreteCritic as DiscreteCritic
from purerl.networks.critics import Twin as Twin
from purerl.networks.layers import small_product as small_product
from purerl.networks.orthogonal import init_params as init_params
from purerl.networks.orthogonal import orthogonal as orthogonal
from purerl.networks.torsos import ACTIVATIONS as ACTIVATIONS
from purerl.networks.torsos import CNN as CNN
from purerl.networks.torsos import MLP as MLP
from purerl.networks.torsos import TORSOS as TORSOS
from purerl.networks.torsos import make_torso as make_torso
