"""What Kairos stops, and what it costs.

The benchmark's tools are objects in memory, so there is no boundary to stand at. `executor` takes the place of the framework's tool
executor: each tool call becomes an outgoing event, each result an incoming one, both over `kairos decide --stdio`. Policy, provenance,
holds and verdicts are Kairos' own; nothing in this package decides about an effect except an oracle, where one is asked.
"""
