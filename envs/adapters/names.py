"""The names of the environments of other packages.

They stand here so that to list or to check a name imports none of these packages, which
takes seconds. A test compares them with what the packages register.
"""

GYMNAX_IDS: tuple[str, ...] = tuple(
    """
Acrobot-v1 Asterix-MinAtar BernoulliBandit-misc Breakout-MinAtar Catch-bsuite
DeepSea-bsuite DiscountingChain-bsuite FourRooms-misc Freeway-MinAtar FrozenLake-misc
GaussianBandit-misc MNISTBandit-bsuite MemoryChain-bsuite MetaMaze-misc MountainCar-v0
MountainCarContinuous-v0 Pendulum-v1 PointRobot-misc Pong-misc Reacher-misc
Seaquest-MinAtar SimpleBandit-bsuite SpaceInvaders-MinAtar Swimmer-misc
UmbrellaChain-bsuite
""".split()
)
"""Ids taken from gymnax; its CartPole-v1 is left out because ours has the name."""

BRAX_NAMES: tuple[str, ...] = tuple(
    """
ant fast halfcheetah hopper humanoid humanoidstandup inverted_double_pendulum
inverted_pendulum pusher reacher swimmer walker2d
""".split()
)
"""Names of brax's environments; the id is `brax/<name>`."""

CRAFTAX_NAMES: tuple[str, ...] = tuple(
    """
Craftax-Symbolic-v1 Craftax-Pixels-v1 Craftax-Classic-Symbolic-v1
Craftax-Classic-Pixels-v1
""".split()
)
"""Names of Craftax's environments; the id is `craftax/<name>`."""

JUMANJI_NAMES: tuple[str, ...] = tuple(
    """
BinPack-v2 CVRP-v1 Cleaner-v0 Connector-v3 FlatPack-v0 Game2048-v1 GraphColoring-v1
JobShop-v0 Knapsack-v1 LevelBasedForaging-v0 MMST-v0 Maze-v0 Minesweeper-v0
MultiCVRP-v0 PacMan-v1 RobotWarehouse-v0 RubiksCube-partly-scrambled-v0 RubiksCube-v0
SearchAndRescue-v0 SlidingTilePuzzle-v0 Snake-v1 Sokoban-v0 Sudoku-v0
Sudoku-very-easy-v0 TSP-v1 Tetris-v0
""".split()
)
"""Names of Jumanji's environments; the id is `jumanji/<name>`."""
