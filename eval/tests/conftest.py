"""What the tests share: a real Kairos (never a stand-in), the policies of the repository, and the suites."""

from __future__ import annotations

from pathlib import Path

import pytest
from kairos_eval.benchmark import benchmark
from kairos_eval.policies import Policies, default_folder
from kairos_eval.stdio import Kairos, find_binary


@pytest.fixture(scope="session")
def kairos():
    with Kairos(find_binary()) as running:
        yield running


@pytest.fixture(scope="session")
def policies(kairos) -> Policies:
    found = Policies(default_folder())
    found.enforce(kairos)
    return found


@pytest.fixture(scope="session")
def suites():
    return benchmark("v1.1.2")


@pytest.fixture
def here() -> Path:
    return Path(__file__).parent
