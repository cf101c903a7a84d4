"""Training runs: a config becomes one pure function from a key to a trained agent."""

from purerl.train.binding import Bound as Bound
from purerl.train.binding import Plan as Plan
from purerl.train.binding import bind as bind
from purerl.train.binding import make_plan as make_plan
from purerl.train.binding import resolve as resolve
from purerl.train.make import Train as Train
from purerl.train.make import check_acts as check_acts
from purerl.train.make import check_key as check_key
from purerl.train.make import make_algorithm as make_algorithm
from purerl.train.make import make_policy as make_policy
from purerl.train.make import make_train as make_train
from purerl.train.reads import check_may_move as check_may_move
from purerl.train.segments import SegmentProgram as SegmentProgram
from purerl.train.segments import check_time_limit as check_time_limit
from purerl.train.segments import evaluate_afresh as evaluate_afresh
from purerl.train.segments import evaluate_agent as evaluate_agent
from purerl.train.segments import make_segment as make_segment
from purerl.train.segments import max_evaluations as max_evaluations
from purerl.train.segments import parameters_finite as parameters_finite
