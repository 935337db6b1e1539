"""The wire: order, mistakes, a process that dies."""

from __future__ import annotations

import pytest
from kairos_eval.stdio import Kairos, KairosError, find_binary

POLICY = '[[tool]]\nname = "look"\neffect = "read"\n\n[[tool]]\nname = "pay"\neffect = "act"\ngate = { to = "email" }\n'


def test_many_sessions_in_one_batch(kairos):
    kairos.policy("wire", POLICY)
    opened = [{"do": "open", "session": f"wire-{number}", "policy": "wire", "task": f"pay user{number}@example.org"} for number in range(50)]
    pays = [{"do": "propose", "session": f"wire-{number}", "tool": "pay", "arguments": {"to": f"user{2 * number}@example.org"}} for number in range(50)]
    replies = kairos.batch([*opened, *pays])
    assert [reply["decision"] for reply in replies[50:]] == ["release", *["defer"] * 49], "only user0's task names its own recipient"


def test_a_mistake_is_told_in_words(kairos):
    with pytest.raises(KairosError, match="session"):
        kairos.ask({"do": "propose", "session": "nobody", "tool": "pay", "arguments": {}})


def test_a_process_that_dies_is_told():
    dead = Kairos("/bin/sh", ["-c", "echo gone >&2; exit 3"])
    with pytest.raises(KairosError, match="ended"):
        dead.ask({"do": "held", "session": "x"})
    dead.close()


def test_a_missing_binary_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KAIROS", raising=False)
    with pytest.raises(KairosError, match="cargo build"):
        find_binary()
