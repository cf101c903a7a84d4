"""DiscoRL's weights under the authors' names, and what their code makes of them."""

from pathlib import Path

import numpy as np
import pytest

from tests.contrib import disco_case


@pytest.fixture(scope="session")
def disco_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("disco") / "weights.npz"
    np.savez(path, **disco_case.published())
    return path


@pytest.fixture(scope="session")
def reference():
    with np.load(Path(__file__).with_name("disco_reference.npz")) as file:
        return {name: file[name] for name in file.files}
