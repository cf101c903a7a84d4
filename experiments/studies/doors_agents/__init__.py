"""DQN on Doors-v0 in three stacks: PyTorch, Flax, and all of it in JAX.

`loop` is what a host does around Gymnasium's environments, for a learner of any
framework; `torch_dqn` and `flax_dqn` are the learners; `config` has the settings of all
three, with which `purerl.make_train` trains the third.
"""
