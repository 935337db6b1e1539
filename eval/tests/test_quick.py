"""Comparisons that leave out what is equal have the same answers as the library's own."""

from __future__ import annotations

from functools import partial

import pytest
from agentdojo.default_suites.v1.travel.task_suite import TravelDeepDiff
from agentdojo.default_suites.v1.workspace.task_suite import WorkspaceDeepDiff
from deepdiff import DeepDiff
from kairos_eval import quick

CHANGES = {
    "workspace": (WorkspaceDeepDiff, [
        ("send_email", {"recipients": ["a@b.example"], "subject": "s", "body": "b"}),
        ("send_email", {"recipients": ["c@d.example"], "subject": "s", "body": "b"}),
        ("create_file", {"filename": "n.txt", "content": "c"}),
        ("delete_file", {"file_id": "11"}),
        ("reschedule_calendar_event", {"event_id": "5", "new_start_time": "2024-05-20 10:00"}),
        ("share_file", {"file_id": "3", "email": "a@b.example", "permission": "r"}),
    ]),
    "travel": (TravelDeepDiff, [
        ("reserve_hotel", {"hotel": "City Hub", "start_day": "2024-05-01", "end_day": "2024-05-02"}),
        ("create_calendar_event", {"title": "t", "start_time": "2024-05-01 09:00", "end_time": "2024-05-01 10:00"}),
    ]),
    "slack": (partial(DeepDiff), [
        ("send_channel_message", {"channel": "general", "body": "b"}),
        ("invite_user_to_slack", {"user": "X", "user_email": "x@y.example"}),
    ]),
    "banking": (partial(DeepDiff), [
        ("send_money", {"recipient": "X", "amount": 1.0, "subject": "s", "date": "2022-01-01"}),
        ("update_scheduled_transaction", {"id": 7, "amount": 1200.0}),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("suite", sorted(CHANGES))
def test_same_differences(suites, suite):
    diff, calls = CHANGES[suite]
    for number in range(len(calls) + 1):
        before, after = suites.environment(suite, {}), suites.environment(suite, {})
        runtime = suites.runtime(suite)
        for tool, arguments in calls[:number]:
            assert suites.execute(runtime, after, tool, arguments).error is None
        quick.install()
        fast = str(diff(before, after))
        quick.remove()
        try:
            assert fast == str(diff(before, after))
        finally:
            quick.install()


def test_few_common_keys():
    """Where two dictionaries share little the library reports one change; so it does here."""
    one, other = {"a": 1, "b": 2, "c": 3}, {"a": 1, "x": 2, "y": 3, "z": 4}
    assert quick.pruned(one, other) == (one, other)
