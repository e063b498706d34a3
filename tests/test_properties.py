"""Random calls of every op beside its definition in NumPy; the command tests/reliability/properties.py runs more."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from minigrad import ops

from .properties import rules
from .properties.checks import check

RULES = rules()
EXAMPLES = settings(
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.filterwarnings("ignore:.* they broadcast to:UserWarning")  # losses, as in PyTorch
def test_random_calls(name):
    @EXAMPLES
    @given(st.data())
    def run(data):
        check(RULES[name], data.draw)

    run()


def test_every_op_has_its_rule():
    named = set(ops.__all__)
    assert not named - RULES.keys(), f"ops without a rule in tests/properties: {named - RULES.keys()}"
    assert not RULES.keys() - named, f"rules of ops that no __all__ names: {RULES.keys() - named}"
