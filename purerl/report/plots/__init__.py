"""Pictures: the only door to matplotlib, without its global state.

Every function takes data and options and returns a figure; `save` writes one, `to_svg`
makes it ready for a page.
"""

from purerl.report.plots.axes import heat_map as heat_map
from purerl.report.plots.axes import scatter as scatter
from purerl.report.plots.axes import slices as slices
from purerl.report.plots.comparison import comparison_figure as comparison_figure
from purerl.report.plots.curves import sweep_curves as sweep_curves
from purerl.report.plots.evolution import evolution_curve as evolution_curve
from purerl.report.plots.evolution import evolution_returns as evolution_returns
from purerl.report.plots.losses import drift_figure as drift_figure
from purerl.report.plots.losses import loss_figure as loss_figure
from purerl.report.plots.losses import value_loss_figure as value_loss_figure
from purerl.report.plots.optimisers import optimiser_figure as optimiser_figure
from purerl.report.plots.run import learning_curve as learning_curve
from purerl.report.plots.run import metric_curves as metric_curves
from purerl.report.plots.run import metric_series as metric_series
from purerl.report.plots.run import run_curve as run_curve
from purerl.report.plots.scores import power as power
from purerl.report.plots.scores import profile as profile
from purerl.report.plots.scores import score_groups as score_groups
from purerl.report.plots.scores import seed_scores as seed_scores
from purerl.report.plots.searches import halving_scores as halving_scores
from purerl.report.plots.searches import halving_values as halving_values
from purerl.report.plots.searches import population_scores as population_scores
from purerl.report.plots.searches import population_values as population_values
from purerl.report.plots.searches import request_scores as request_scores
from purerl.report.plots.style import save as save
from purerl.report.plots.style import to_svg as to_svg
