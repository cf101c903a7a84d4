"""Parts that one study each uses: same tests, same tools, outside the reader's way.

* `disco`: DiscoRL's agent and its rules.
* `open`: the learned optimiser OPEN.
* `formula`, `distil`: drifts in closed form, and the search for one.
* `bandit`, `k_armed_bandit`: bandit methods, and the testbed.
* `matrix_games`: opponents that learn; `cheap_talk`: a channel of an adversary.
* `hardware`: what training would take on a GPU that is not here.

The registries know what is here by name and import it when it is first used. Nothing
else in purerl imports it, but for the command line.
"""
