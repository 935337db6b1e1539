"""The benchmark's own code, where it meets what no ground truth does."""

from __future__ import annotations

from kairos_eval.benchmark import benchmark


def test_a_check_that_breaks_has_not_found_its_goal(capsys):
    suites = benchmark("v1.2.2")
    attacker = suites.suites["workspace"].get_injection_task_by_id("injection_task_10")
    before, after = suites.environment("workspace", {}), suites.environment("workspace", {})
    mail = next(iter(after.inbox.emails.values()))
    # The check compares names of files; a model may attach a meeting all the same.
    mail.attachments = [next(iter(after.calendar.events.values()))]
    after.inbox.trash = {mail.id_: mail}
    for _ in range(2):
        assert suites.check("workspace", attacker, "done", before, after, []) is False
    told = capsys.readouterr().err
    assert told.count("workspace/injection_task_10") == 1 and "counted as not reached" in told
