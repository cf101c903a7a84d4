"""Statistics over seeds and tasks: small tables on the host, more on the device."""

from purerl.report.statistics.host import bootstrap_mean as bootstrap_mean
from purerl.report.statistics.host import nanmean as nanmean
from purerl.report.statistics.intervals import Estimate as Estimate
from purerl.report.statistics.intervals import compare as compare
from purerl.report.statistics.intervals import curve as curve
from purerl.report.statistics.intervals import estimate as estimate
from purerl.report.statistics.intervals import estimates as estimates
from purerl.report.statistics.intervals import (
    performance_profile as performance_profile,
)
from purerl.report.statistics.intervals import (
    probability_of_improvement as probability_of_improvement,
)
from purerl.report.statistics.power import PowerCurve as PowerCurve
from purerl.report.statistics.power import power_curve as power_curve
from purerl.report.statistics.power import seeds_needed as seeds_needed
