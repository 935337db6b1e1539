"""Figures that others published, for comparison: marked as published wherever they are shown; nothing here was measured by us.

Source of all: *Kairos: Transactional Security Enforcement at the System Boundary for LLM Agents*, Tables I, II and III and Section IV.
"""

from __future__ import annotations

COLUMNS = ("benchmark", "agent", "defence", "ASR", "U", "U_b", "NRP")

ROWS: list[tuple[str, str, str, float | None, float | None, float | None, float | None]] = [
    ("AgentDojo", "GPT-4.1", "none", 47.0, 59.8, 82.7, None),
    ("AgentDojo", "GPT-4.1", "Kairos prototype, oracle GPT-4.1", 2.7, 69.5, 85.1, 82.8),
    ("AgentDojo", "GPT-4.1", "Kairos prototype, strict", None, 34.7, 42.7, None),
    ("AgentDojo", "GPT-4.1", "Progent", None, None, None, 69.2),
    ("AgentDojo", "GPT-4.1", "CaMeL", 0.2, None, 38.0, None),
    ("AgentDojo", "GPT-4.1", "Spotlighting", 49.2, None, None, None),
    ("AgentDojo", "Qwen3.6-35B", "none", 28.3, None, 87.0, None),
    ("AgentDojo", "Qwen3.6-35B", "Kairos prototype, oracle GPT-4.1", 1.3, None, 84.6, 83.5),
    ("AgentDojo", "Qwen3.6-35B", "CaMeL", 0.4, None, 40.4, None),
    ("AgentDojo", "Llama-3.3-70B", "none", 32.3, 24.6, 29.8, None),
    ("AgentDojo", "Llama-3.3-70B", "Kairos prototype, oracle GPT-4.1", 2.4, 34.0, 32.3, 31.5),
    ("AgentDojo", "Llama-3.3-70B", "CaMeL", 0.0, None, 26.5, None),
    ("AgentDyn", "GPT-4o", "none", 37.8, 55.5, 53.3, None),
    ("AgentDyn", "GPT-4o", "Kairos prototype, oracle GPT-4.1", 1.7, 37.1, 51.7, 50.8),
    ("AgentDyn", "GPT-4o", "Progent", 1.7, 5.8, None, None),
    ("AgentDyn", "GPT-4o", "PI detector", None, 0.6, 0.0, None),
    ("AutoDojo", "GPT-4o-mini", "none", 52.4, None, None, None),
    ("AutoDojo", "GPT-4o-mini", "Kairos prototype, oracle GPT-4.1", 8.8, None, 65.3, 59.6),
    ("AutoDojo", "GPT-4o-mini", "Progent", 7.7, None, None, 58.3),
    ("AutoDojo", "GPT-4o-mini", "PI detector", 15.4, None, 47.4, None),
]

RELEASED_BY_POLICY = (83.0, 72.0)
"""Share of benign effects, and of effects under attack, that the published prototype's policy released directly."""
