"""Pictures: the only door to matplotlib, without its global state.

Every function takes data and options and returns a `Picture`, which is a pair of figure
and axes; `save` writes one, `paper` gives it the size of a paper's.
"""

from purerl.report.plots.learned import drift_figure as drift_figure
from purerl.report.plots.learned import loss_figure as loss_figure
from purerl.report.plots.learned import optimiser_figure as optimiser_figure
from purerl.report.plots.learned import value_loss_figure as value_loss_figure
from purerl.report.plots.runs import comparison_figure as comparison_figure
from purerl.report.plots.runs import curves as curves
from purerl.report.plots.runs import curves_figure as curves_figure
from purerl.report.plots.runs import evolution_curve as evolution_curve
from purerl.report.plots.runs import evolution_returns as evolution_returns
from purerl.report.plots.runs import learning_curve as learning_curve
from purerl.report.plots.runs import metric_curves as metric_curves
from purerl.report.plots.searches import halving_scores as halving_scores
from purerl.report.plots.searches import halving_values as halving_values
from purerl.report.plots.searches import population_scores as population_scores
from purerl.report.plots.searches import population_values as population_values
from purerl.report.plots.searches import request_scores as request_scores
from purerl.report.plots.searches import study_figures as study_figures
from purerl.report.plots.searches import study_history as study_history
from purerl.report.plots.style import Axis as Axis
from purerl.report.plots.style import Picture as Picture
from purerl.report.plots.style import paper as paper
from purerl.report.plots.style import save as save
from purerl.report.plots.sweeps import heat_map as heat_map
from purerl.report.plots.sweeps import score_groups as score_groups
from purerl.report.plots.sweeps import seed_scores as seed_scores
from purerl.report.plots.sweeps import slices as slices
from purerl.report.plots.sweeps import sweep_curves as sweep_curves
