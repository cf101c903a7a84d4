"""Configs as plain dicts and YAML, both ways, without pickle.

A part of a config (a loss, an optimiser, a schedule) is written with its class, as
`{"type": "ClipDrift", "clip_eps": 0.2}`. On the way in a string such as
`"DPODrift(alpha=2.0, beta=0.6)"` is understood too, for command lines. A
network of the user's own is written with its import path: see `networks.modules`.
"""

from purerl.serialise.configs import from_dict as from_dict
from purerl.serialise.configs import from_yaml as from_yaml
from purerl.serialise.configs import parse_params as parse_params
from purerl.serialise.configs import parse_text as parse_text
from purerl.serialise.configs import parse_value as parse_value
from purerl.serialise.configs import to_dict as to_dict
from purerl.serialise.configs import to_yaml as to_yaml
from purerl.serialise.environments import env_name as env_name
from purerl.serialise.environments import env_text as env_text
from purerl.serialise.parts import IN_FILES as IN_FILES
from purerl.serialise.parts import load_part as load_part
from purerl.serialise.parts import parse_part as parse_part
from purerl.serialise.parts import parse_terms as parse_terms
from purerl.serialise.parts import save_part as save_part
from purerl.serialise.text import part_text as part_text
from purerl.serialise.text import plain as plain
from purerl.serialise.yaml_text import mapping_of as mapping_of
from purerl.serialise.yaml_text import read_file as read_file
from purerl.serialise.yaml_text import read_mapping as read_mapping
from purerl.serialise.yaml_text import read_yaml as read_yaml
from purerl.serialise.yaml_text import yaml_text as yaml_text
