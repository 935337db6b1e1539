"""Makes the benchmark's own checks fast, with the same answers.

A check compares two whole environments, of which a run changes one or two objects. What is equal on both sides adds nothing to a difference,
so it is left out of both before the comparison; `tests/test_quick.py` holds that the differences stay the same.
"""

from __future__ import annotations

from typing import Any

from deepdiff import DeepDiff
from pydantic import BaseModel

_plain = DeepDiff.__init__


def install() -> None:
    """From now on, every comparison leaves out what is equal."""
    DeepDiff.__init__ = _quick


def remove() -> None:
    """Comparisons are the library's own again."""
    DeepDiff.__init__ = _plain


def _quick(self: DeepDiff, t1: Any, t2: Any, *rest: Any, **options: Any) -> None:
    if "_shared_parameters" not in options and isinstance(t1, BaseModel) and type(t1) is type(t2):
        t1, t2 = pruned(t1, t2)
    _plain(self, t1, t2, *rest, **options)


def pruned(one: Any, other: Any) -> tuple[Any, Any]:
    """Both without what they have in common. Lists stay whole: their positions are part of a difference."""
    if isinstance(one, BaseModel) and type(one) is type(other):
        left, right = one.model_copy(), other.model_copy()
        _prune(left.__dict__, right.__dict__)
        return left, right
    if type(one) is dict and type(other) is dict:
        left, right = dict(one), dict(other)
        _prune(left, right)
        return left, right
    return one, other


def _prune(left: dict[Any, Any], right: dict[Any, Any]) -> None:
    common = [key for key in left if key in right]
    # The library reports two dictionaries that share few keys as one change: as many equal keys are kept as there are others.
    keep = len(left) + len(right) - 2 * len(common)
    for key in common:
        if left[key] == right[key] and type(left[key]) is type(right[key]):
            if keep > 0:
                keep -= 1
            else:
                del left[key], right[key]
        else:
            left[key], right[key] = pruned(left[key], right[key])
