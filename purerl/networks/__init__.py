"""Networks in flax.linen: torsos, actors, critics; distributions; a memory."""

from purerl.networks.actors import LOG_STD_RANGE as LOG_STD_RANGE
from purerl.networks.actors import CategoricalActor as CategoricalActor
from purerl.networks.actors import GaussianActor as GaussianActor
from purerl.networks.actors import StateGaussianActor as StateGaussianActor
from purerl.networks.actors import TanhActor as TanhActor
from purerl.networks.composite import Masked as Masked
from purerl.networks.critics import ActionCritic as ActionCritic
from purerl.networks.critics import Critic as Critic
from purerl.networks.critics import DiscreteCritic as DiscreteCritic
from purerl.networks.critics import Twin as Twin
from purerl.networks.distributions import Gaussian as Gaussian
from purerl.networks.images import Impala as Impala
from purerl.networks.images import Nature as Nature
from purerl.networks.layers import ACTIVATIONS as ACTIVATIONS
from purerl.networks.layers import COLLECTION as COLLECTION
from purerl.networks.layers import Dense as Dense
from purerl.networks.layers import Features as Features
from purerl.networks.layers import small_product as small_product
from purerl.networks.modules import Batched as Batched
from purerl.networks.orthogonal import init_params as init_params
from purerl.networks.orthogonal import orthogonal as orthogonal
from purerl.networks.torsos import CNN as CNN
from purerl.networks.torsos import MLP as MLP
from purerl.networks.torsos import TORSOS as TORSOS
from purerl.networks.torsos import Joined as Joined
from purerl.networks.torsos import make_torso as make_torso
