"""Statistics over seeds and tasks: estimates, intervals, the seeds that they need."""

from purerl.report.statistics.intervals import INTERVAL as INTERVAL
from purerl.report.statistics.intervals import Estimate as Estimate
from purerl.report.statistics.intervals import curve as curve
from purerl.report.statistics.intervals import estimate as estimate
from purerl.report.statistics.intervals import estimates as estimates
from purerl.report.statistics.intervals import has_interval as has_interval
from purerl.report.statistics.intervals import heading_of as heading_of
from purerl.report.statistics.intervals import mean_interval as mean_interval
from purerl.report.statistics.intervals import name_of as name_of
from purerl.report.statistics.intervals import nanmean as nanmean
from purerl.report.statistics.intervals import (
    performance_profile as performance_profile,
)
from purerl.report.statistics.intervals import (
    probability_of_improvement as probability_of_improvement,
)
from purerl.report.statistics.intervals import text_of as text_of
from purerl.report.statistics.power import PowerCurve as PowerCurve
from purerl.report.statistics.power import power_curve as power_curve
from purerl.report.statistics.power import seeds_needed as seeds_needed
from purerl.report.statistics.resampling import aggregate as aggregate
