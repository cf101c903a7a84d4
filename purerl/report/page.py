"""Reports as one HTML file: the pages, and what others can be written with.

`run_page`, `sweep_page`, `population_page`, `study_page`, `evolution_page` and
`comparison_page` make the usual pages; `write_page` writes any other one from sections
(see `purerl.report.html`).
"""

from purerl.report.html import MAX_ROWS as MAX_ROWS
from purerl.report.html import Section as Section
from purerl.report.html import about as about
from purerl.report.html import code_html as code_html
from purerl.report.html import figure_html as figure_html
from purerl.report.html import note_html as note_html
from purerl.report.html import settings_html as settings_html
from purerl.report.html import table_html as table_html
from purerl.report.html import video_html as video_html
from purerl.report.html import write_page as write_page
from purerl.report.page_comparison import comparison_page as comparison_page
from purerl.report.page_evolution import evolution_page as evolution_page
from purerl.report.page_runs import run_page as run_page
from purerl.report.page_search import BestRow as BestRow
from purerl.report.page_search import Population as Population
from purerl.report.page_search import population_page as population_page
from purerl.report.page_search import search_page as search_page
from purerl.report.page_study import study_page as study_page
from purerl.report.page_sweep import sweep_page as sweep_page
from purerl.report.page_sweep import sweep_table as sweep_table
